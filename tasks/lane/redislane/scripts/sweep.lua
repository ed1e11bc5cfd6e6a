-- sweep makes ready what is due: queues whose worker died, parked deliveries
-- whose retry has come, delayed events.
--
-- KEYS[1] shard prefix
-- ARGV[1] due members to look at, at most
-- ARGV[2] idempotency window in ms   ARGV[3] idle time of an operation in ms
--
-- Returns {queues made ready, leases that had ended, ms until the next due
-- member or -1, ready queues}; an error when a key has the wrong type: that
-- member is looked at again after a second, and all others were served.
--
-- Atomic, because two sweepers may run at once and a queue must stand on the
-- ready list at most once.
local now = redis_now()
local window, idle = tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = bucket_of(now, window)
local made, ended, broken = 0, 0, nil

local function append_delayed(op, id)
  local skey, dkey = P .. 'state:' .. op, P .. 'delayed:' .. op
  local v = call('HGET', dkey, id)
  local digest, doc = string.match(v or '', '^([^:]*):(.*)$')
  local s = call('HMGET', skey, 'st', 'head')
  if digest then
    if not s[2] then call('HSET', skey, 'head', 1) end
    local lkey, seen_key = P .. 'lane:' .. op, P .. 'seen:' .. op .. ':' .. int(bucket)
    call('HSET', seen_key, id, int(tonumber(s[2] or '1') + call('LLEN', lkey)) .. ':' .. digest)
    call('PEXPIREAT', seen_key, forgotten_at(bucket, window))
    call('RPUSH', lkey, doc)
    call('HDEL', dkey, id)
  end
  if call('EXISTS', dkey) == 0 then call('HDEL', skey, 'dl') end
  if not filled(s[1]) and call('EXISTS', P .. 'lane:' .. op) == 1 then
    call('PERSIST', skey)
    make_ready(op)
    made = made + 1
  end
end

-- revive reports whether the queue is still due later.
local function revive(qid)
  local key = state_key(qid)
  local s = call('HMGET', key, 'st', 'exp')
  -- A ready queue is due only when a claim had to put it aside.
  if s[1] == 'r' and call('LPOS', P .. 'ready', qid) then return false end
  if s[1] == 'c' then
    if tonumber(s[2] or '0') > now then
      call('ZADD', P .. 'due', s[2], qid)
      return true
    end
    ended = ended + 1
    call('HDEL', key, 'tok', 'exp', 'st')
  end
  if call('EXISTS', list_key(qid)) == 1 then
    make_ready(qid)
    made = made + 1
  elseif hook_of(qid) then
    unpark(qid, idle, window)
  else
    rest(qid, idle, window)
  end
  return false
end

local function look(member)
  if string.sub(member, OP_LENGTH + 1, OP_LENGTH + 1) == '|' then
    append_delayed(op_of(member), string.sub(member, OP_LENGTH + 2))
  elseif valid(member) then
    return revive(member)
  end
  return false
end

for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'due', '-inf', int(now), 'LIMIT', 0, ARGV[1])) do
  local later, fault = guard(look, member)
  if fault then
    broken = fault
    call('ZADD', P .. 'due', now + 1000, member)
  elseif not later then
    call('ZREM', P .. 'due', member)
  end
end
-- A worker that died between its wake-up and its claim took the token with it.
local waiting = call('LLEN', P .. 'ready')
if waiting > 0 and call('EXISTS', P .. 'wake') == 0 then call('RPUSH', P .. 'wake', '1') end
if broken then return redis.error_reply(broken) end

local next_due = call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')
local wait = -1
if next_due[2] then wait = math.max(0, math.ceil(tonumber(next_due[2]) - now)) end
return { made, ended, wait, waiting }
