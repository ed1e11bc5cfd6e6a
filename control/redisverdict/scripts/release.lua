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
  local key = P .. 'q:' .. qid
  local h = call('HMGET', key, 'tok', 'dl', 'v')
  if h[1] == ARGV[i + 1] and not h[3] then
    call('ZREM', P .. 'held', qid)
    call('HSET', key, 'st', 'w')
    call('HDEL', key, 'tok')
    -- A claim that was given back is not one of those that went wrong.
    call('HINCRBY', key, 'n', -1)
    offer('LPUSH', qid, tonumber(h[2] or '0') - now + keep)
    given = given + 1
  end
end
return given
