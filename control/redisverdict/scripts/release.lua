-- release gives questions back that a worker holds and will not answer.
--
-- KEYS[1] shard prefix
-- ARGV[1] ms for which a verdict is kept   ARGV[2..] pairs of question and token
--
-- Returns the number of questions that are offered again.
--
-- Atomic, because a question must be on the list or in somebody's hands.
local now, keep, given = redis_now(), tonumber(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local qid = ARGV[i]
  local q = open(qid)
  if q and q.token == ARGV[i + 1] then
    call('ZREM', P .. 'held', qid)
    -- A claim that was given back is not one of those that went wrong.
    call('HSET', P .. 'q:' .. qid, 'st', 'w', 'tok', '', 'n', q.claims - 1)
    offer('LPUSH', qid, math.max(0, q.deadline - now) + keep)
    given = given + 1
  end
end
return given
