-- renew renews the leases of the questions that a worker holds (its heartbeat).
--
-- KEYS[1] shard prefix
-- ARGV[1] lease in ms   ARGV[2..] pairs of question and token
--
-- Returns one 1 (renewed) or 0 per pair: settled, over, or in other hands.
--
-- Atomic, because a lease that is renewed after another worker took the question
-- would keep it from being swept.
local now, lease = redis_now(), tonumber(ARGV[1])
local out = {}
for i = 2, #ARGV, 2 do
  local h = call('HMGET', P .. 'q:' .. ARGV[i], 'tok', 'dl')
  if h[1] == ARGV[i + 1] and now < tonumber(h[2] or '0') then
    call('ZADD', P .. 'held', now + lease, ARGV[i])
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return out
