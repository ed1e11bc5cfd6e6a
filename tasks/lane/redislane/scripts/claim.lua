-- claim takes queues from the ready list into one worker's hands.
--
-- KEYS[1] shard prefix
-- ARGV[1] number of queues at most   ARGV[2] entries per queue at most
-- ARGV[3] lease in ms   ARGV[4] idempotency window in ms
-- ARGV[5] idle time of an operation in ms
--
-- Returns {now, claim, ...}, a claim being {queue id, operation id, token, head
-- sequence, attempt, settled hooks, parked hooks, {entry, ...}}; an error when
-- there was only a queue with keys of the wrong type, which is looked at again
-- after a second.
--
-- Atomic, because taking a queue off the ready list without leaving a lease in
-- the due set would lose it when the worker dies in between.
local now = redis_now()
local max, batch, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local out = { int(now) }
local window, idle = tonumber(ARGV[4]), tonumber(ARGV[5])

-- Tokens are taken as a block, one for each claim that this call may make. The
-- counter starts at the microsecond, which claims cannot overtake, so that a token
-- does not come again when Redis lost its data.
local function token_block()
  local last = call('INCRBY', P .. 'tokens', max)
  if last > max then return last - max end
  local t = call('TIME')
  return call('INCRBY', P .. 'tokens', int(tonumber(t[1]) * 1000000 + tonumber(t[2]))) - max
end
local last_token
local function next_token()
  last_token = (last_token or token_block()) + 1
  return last_token
end

local function nothing_in(qid)
  if hook_of(qid) then return unpark(qid, idle, window) end
  call('HDEL', state_key(qid), 'st')
  rest(qid, idle, window)
end

local function take(qid)
  local key = state_key(qid)
  local s = call('HMGET', key, 'st', 'op', 'head', 'att', 'd', 'pk')
  if s[1] == 'c' or s[1] == 'p' then return nil end
  local entries = read(list_key(qid), batch)
  if #entries == 0 then return nothing_in(qid) end
  local operation = s[2]
  if hook_of(qid) then operation = call('HGET', P .. 'state:' .. op_of(qid), 'op') end
  local token = next_token()
  call('ZADD', P .. 'due', now + lease, qid)
  call('HSET', key, 'st', 'c', 'tok', int(token), 'exp', now + lease)
  return { qid, operation or '', int(token), s[3] or '1', s[4] or '0', s[5] or '', s[6] or '', entries }
end

-- put_aside keeps a broken queue out of the way for a second.
local function put_aside(qid)
  guard(call, 'HDEL', state_key(qid), 'st')
  call('ZADD', P .. 'due', now + 1000, qid)
end

local broken, aside = nil, {}
while #out <= max do
  local qid = call('LPOP', P .. 'ready')
  if not qid then
    -- Whatever still wants to wake somebody speaks of queues that are taken.
    call('DEL', P .. 'wake')
    break
  end
  if valid(qid) then
    local claim, fault = guard(take, qid)
    if claim then out[#out + 1] = claim end
    if fault then
      broken = fault
      aside[#aside + 1] = qid
    end
  end
end
for _, qid in ipairs(aside) do
  local _, fault = guard(put_aside, qid)
  if fault then call('RPUSH', P .. 'ready', qid) end
end
-- Claims that were made must reach the worker; the broken queue comes again.
if broken and #out == 1 then return redis.error_reply(broken) end
return out
