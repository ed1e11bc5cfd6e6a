-- extend renews the leases of the queues that a worker holds (its heartbeat).
--
-- KEYS[1] shard prefix
-- ARGV[1] lease in ms   ARGV[2..] pairs of queue id and token
--
-- Returns one 1 (renewed) or 0 (lost) per pair.
--
-- Atomic, because a lease that is renewed after another worker took the queue
-- would let two workers deliver from it.
local now, lease = redis_now(), tonumber(ARGV[1])
local out = {}
for i = 2, #ARGV, 2 do
  local key = state_key(ARGV[i])
  if call('HGET', key, 'tok') == ARGV[i + 1] then
    call('HSET', key, 'exp', now + lease)
    call('ZADD', P .. 'due', now + lease, ARGV[i])
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return out
