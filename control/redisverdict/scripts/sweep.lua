-- sweep offers questions again whose worker died.
--
-- KEYS[1] shard prefix
-- ARGV[1] questions at most   ARGV[2] ms for which a verdict is kept
-- ARGV[3] claims after which a question gets its fallback
--
-- Returns {offered again, given up, waiting for a worker}.
--
-- Atomic, because two sweepers may run at once and a question must be offered
-- once.
local now, keep, most = redis_now(), tonumber(ARGV[2]), tonumber(ARGV[3])
local again, given_up = 0, 0

local function revive(qid)
  local key = P .. 'q:' .. qid
  local h = call('HMGET', key, 'st', 'dl', 'v', 'n', 'fb', 'in')
  if h[1] ~= 'c' or h[3] then return end
  local left = tonumber(h[2] or '0') - now
  if left <= 0 then return finish(qid, h[5], 'deadline', now, keep, h[6], '') end
  -- A question that ends every worker that takes it must not reach all of them.
  if tonumber(h[4] or '0') >= most then
    given_up = given_up + 1
    return finish(qid, h[5], 'sweep', now, keep, h[6], '')
  end
  call('HSET', key, 'st', 'w')
  call('HDEL', key, 'tok')
  offer('LPUSH', qid, left + keep)
  again = again + 1
end

for _, qid in ipairs(call('ZRANGEBYSCORE', P .. 'held', '-inf', int(now), 'LIMIT', 0, ARGV[1])) do
  guard(revive, qid)
  call('ZREM', P .. 'held', qid)
end
local waiting = call('LLEN', P .. 'asks')
-- A wake-up may be lost with a worker's connection.
if waiting > 0 and call('EXISTS', P .. 'wake') == 0 then
  call('RPUSH', P .. 'wake', '1')
  outlast(P .. 'wake', keep)
end
return { again, given_up, waiting }
