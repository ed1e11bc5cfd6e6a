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
-- More at once would not fit into one command.
local max, batch, lease = math.min(tonumber(ARGV[1]), 1000), tonumber(ARGV[2]), tonumber(ARGV[3])
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

-- leases gathers what goes into the due set, a score and a queue each.
local leases = {}
local lease_end = int(now + lease)

local function take(qid)
  local key = state_key(qid)
  local s = call('HMGET', key, 'st', 'op', 'head', 'att', 'd', 'pk')
  if s[1] == 'c' or s[1] == 'p' then return nil end
  local entries = read(list_key(qid), batch)
  if #entries == 0 then return nothing_in(qid) end
  local operation = s[2]
  if hook_of(qid) then operation = call('HGET', P .. 'state:' .. op_of(qid), 'op') end
  local token = int(next_token())
  call('HSET', key, 'st', 'c', 'tok', token, 'exp', lease_end)
  leases[#leases + 1] = lease_end
  leases[#leases + 1] = qid
  return { qid, operation or '', token, s[3] or '1', s[4] or '0', s[5] or '', s[6] or '', entries }
end

-- put_aside keeps a broken queue out of the way for a second.
local function put_aside(qid)
  guard(call, 'HDEL', state_key(qid), 'st')
  call('ZADD', P .. 'due', now + 1000, qid)
end

local broken, aside = nil, {}
local function try(qid)
  if not valid(qid) then return end
  local claim, fault = guard(take, qid)
  if claim then out[#out + 1] = claim end
  if fault then
    broken = fault
    aside[#aside + 1] = qid
  end
end

local left = true
while left and #out <= max do
  local wanted = max + 1 - #out
  local queues = call('LPOP', P .. 'ready', wanted) or {}
  for i = 1, #queues do try(queues[i]) end
  left = #queues == wanted
end
if #leases > 0 then
  local _, fault = guard(call, 'ZADD', P .. 'due', unpack(leases))
  if fault then
    -- A claim without an end to its lease would never come back.
    for i = 2, #leases, 2 do
      call('RPUSH', P .. 'ready', leases[i])
      call('HSET', state_key(leases[i]), 'st', 'r', 'tok', '', 'exp', '')
    end
    return redis.error_reply(fault)
  end
end
if not left then
  -- Whatever still wants to wake somebody speaks of queues that are taken.
  call('DEL', P .. 'wake')
elseif call('EXISTS', P .. 'ready') == 1 and call('EXISTS', P .. 'wake') == 0 then
  call('RPUSH', P .. 'wake', '1')
end
for _, qid in ipairs(aside) do
  local _, fault = guard(put_aside, qid)
  if fault then call('RPUSH', P .. 'ready', qid) end
end
-- Claims that were made must reach the worker; the broken queue comes again.
if broken and #out == 1 then return redis.error_reply(broken) end
return out
