-- claim takes queues from the ready list into one worker's hands.
--
-- KEYS[1] shard prefix
-- ARGV[1] number of queues at most   ARGV[2] entries per queue at most
-- ARGV[3] lease in ms   ARGV[4] idempotency window in ms
-- ARGV[5] idle time of an operation in ms
--
-- Returns {now, claim, ...}, a claim being {queue id, operation id, token, head
-- sequence, attempt, settled hooks, parked hooks, {entry, ...}}.
--
-- Atomic, because taking a queue off the ready list without leaving a lease in
-- the due set would lose it when the worker dies in between.
local now = redis_now()
local max, batch, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local out = { int(now) }
while #out <= max do
  local qid = call('LPOP', P .. 'ready')
  if not qid then break end
  if #qid >= OP_LENGTH then
    local key = state_key(qid)
    local s = call('HMGET', key, 'st', 'op', 'head', 'att', 'd', 'pk')
    if s[1] ~= 'c' then
      local entries = read(list_key(qid), batch)
      if #entries == 0 then
        call('HDEL', key, 'st')
        rest(op_of(qid), tonumber(ARGV[5]), tonumber(ARGV[4]))
      else
        local operation, parked = s[2], s[6]
        if hook_of(qid) then
          operation = call('HGET', P .. 'state:' .. op_of(qid), 'op')
        end
        local token = call('INCR', P .. 'tokens')
        call('HSET', key, 'st', 'c', 'tok', token, 'exp', now + lease)
        call('ZADD', P .. 'due', now + lease, qid)
        out[#out + 1] = { qid, operation or '', int(token), s[3] or '1', s[4] or '0', s[5] or '', parked or '', entries }
      end
    end
  end
end
return out
