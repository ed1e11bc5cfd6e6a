-- sweep makes ready what is due: queues whose worker died, parked deliveries
-- whose retry has come, delayed events.
--
-- KEYS[1] shard prefix
-- ARGV[1] due members to look at, at most
-- ARGV[2] idempotency window in ms   ARGV[3] idle time of an operation in ms
--
-- Returns {queues made ready, leases that had ended, ms until the next due
-- member or -1, ready queues}.
--
-- Atomic, because two sweepers may run at once and a queue must stand on the
-- ready list at most once.
local now = redis_now()
local window, idle = tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = bucket_of(now, window)
local made, ended = 0, 0

local function append_delayed(op, id)
  local skey, dkey = P .. 'state:' .. op, P .. 'delayed:' .. op
  local doc = call('HGET', dkey, id)
  call('HDEL', dkey, id)
  if not doc then return end
  local seen, at = find_seen(op, id, bucket)
  local seen_key = P .. 'seen:' .. op .. ':' .. int(at or bucket)
  local number = call('HINCRBY', skey, 'next', 1)
  call('RPUSH', P .. 'lane:' .. op, doc)
  call('HSET', seen_key, id, int(number) .. ':' .. (string.match(seen or '', ':(.*)$') or ''))
  call('PEXPIRE', seen_key, window)
  if not call('HGET', skey, 'st') then
    call('PERSIST', skey)
    make_ready(op)
    made = made + 1
  end
end

local function revive(qid)
  local key = state_key(qid)
  local s = call('HMGET', key, 'st', 'exp')
  if s[1] == 'c' then
    if tonumber(s[2] or '0') > now then
      call('ZADD', P .. 'due', s[2], qid)
      return
    end
    ended = ended + 1
    call('HDEL', key, 'tok', 'exp', 'st')
  elseif s[1] == 'r' then
    return
  end
  if call('EXISTS', list_key(qid)) == 1 then
    make_ready(qid)
    made = made + 1
  elseif not hook_of(qid) then
    rest(qid, idle, window)
  end
end

for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'due', '-inf', int(now), 'LIMIT', 0, ARGV[1])) do
  call('ZREM', P .. 'due', member)
  if string.sub(member, OP_LENGTH + 1, OP_LENGTH + 1) == '|' then
    append_delayed(op_of(member), string.sub(member, OP_LENGTH + 2))
  elseif #member >= OP_LENGTH then
    revive(member)
  end
end

local next_due = call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')
local wait = -1
if next_due[2] then wait = math.max(0, tonumber(next_due[2]) - now) end
return { made, ended, wait, call('LLEN', P .. 'ready') }
