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
  local q = open(qid)
  if not q or q.state ~= 'c' then return end
  if now >= q.deadline then return finish(qid, q, q.fallback, 'deadline', now, keep, '') end
  -- A question that ends every worker that takes it must not reach all of them.
  if q.claims >= most then
    given_up = given_up + 1
    return finish(qid, q, q.fallback, 'sweep', now, keep, '')
  end
  call('HSET', P .. 'q:' .. qid, 'st', 'w', 'tok', '')
  offer('LPUSH', qid, q.deadline - now + keep)
  again = again + 1
end

for _, qid in ipairs(call('ZRANGEBYSCORE', P .. 'held', '-inf', now, 'LIMIT', 0, ARGV[1])) do
  guard(revive, qid)
  call('ZREM', P .. 'held', qid)
end
local waiting = call('LLEN', P .. 'asks')
-- A wake-up may be lost with a worker's connection.
if waiting > 0 and call('EXISTS', P .. 'wake') == 0 then push('RPUSH', P .. 'wake', '1', keep) end
return { again, given_up, waiting }
