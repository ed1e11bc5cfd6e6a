-- claim takes questions into one worker's hands.
--
-- KEYS[1] shard prefix
-- ARGV[1] number of questions at most   ARGV[2] lease in ms
-- ARGV[3] ms for which a verdict is kept   ARGV[4] token, which no other claim has
--
-- Returns {claim, ...}, a claim being {question, document, ms until the deadline,
-- attempt, digest}.
--
-- Atomic, because taking a question off the list without leaving a lease would
-- lose it when the worker dies in between.
local now = redis_now()
local max, lease, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local out, bytes = {}, 0

local function take(qid)
  local key = P .. 'q:' .. qid
  local h = call('HMGET', key, 'st', 'dl', 'n', 'doc', 'dig')
  if h[1] ~= 'w' then return nil end
  local left, n = tonumber(h[2] or '0') - now, tonumber(h[3] or '0') + 1
  if left <= 0 then
    local q = open(qid) or {}
    finish(qid, q, q.fallback, 'deadline', now, keep, '')
    return nil
  end
  call('ZADD', P .. 'held', now + lease, qid)
  outlast(P .. 'held', left + keep)
  call('HSET', key, 'st', 'c', 'tok', ARGV[4], 'n', n)
  return { qid, h[4] or '', left, n, h[5] or '' }
end

-- Large questions go in several claims, and so does a long list of questions that
-- are over, so that they do not hold up the shard.
local more, looks = true, 1024
while more and looks > 0 and #out < max and bytes < 1048576 do
  local want = math.min(max - #out, 64)
  local qids = call('LPOP', P .. 'asks', want) or {}
  looks = looks - #qids
  -- When the list is empty, whatever still wants to wake somebody speaks of
  -- questions that are taken.
  more = #qids == want
  if not more then call('DEL', P .. 'wake') end
  for i, qid in ipairs(qids) do
    if bytes >= 1048576 then
      for j = #qids, i, -1 do push('LPUSH', P .. 'asks', qids[j], keep) end
      break
    end
    local claim = guard(take, qid)
    if claim then
      out[#out + 1] = claim
      bytes = bytes + #claim[2]
    end
  end
end
if more and looks <= 0 then push('RPUSH', P .. 'wake', '1', keep) end
return out
