-- claim takes questions into one worker's hands.
--
-- KEYS[1] shard prefix
-- ARGV[1] number of questions at most   ARGV[2] lease in ms
-- ARGV[3] ms for which a verdict is kept   ARGV[4] token, which no other claim has
--
-- Returns {claim, ...}, a claim being {question, operation id, phase, event,
-- rounds, trace, ms until the deadline, ms at the asking, attempt}.
--
-- Atomic, because taking a question off the list without leaving a lease would
-- lose it when the worker dies in between.
local now = redis_now()
local max, lease, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local out, bytes = {}, 0

local function take(qid)
  local key = P .. 'q:' .. qid
  local h = call('HMGET', key, 'st', 'dl', 'op', 'type', 'ev', 'rd', 'tr', 'to', 'fb', 'in')
  if h[1] ~= 'w' then return nil end
  local left = tonumber(h[2] or '0') - now
  if left <= 0 then
    finish(qid, h[9], 'deadline', now, keep, h[10], '')
    return nil
  end
  call('ZADD', P .. 'held', now + lease, qid)
  outlast(P .. 'held', left + keep)
  call('HSET', key, 'st', 'c', 'tok', ARGV[4])
  local n = call('HINCRBY', key, 'n', 1)
  return { qid, h[3] or '', h[4] or '', h[5] or '', h[6] or '', h[7] or '', int(left), h[8] or '0', n }
end

-- Large questions go in several claims, so that they do not hold up the shard.
while #out < max and bytes < 1048576 do
  local qid = call('LPOP', P .. 'asks')
  if not qid then
    -- Whatever still wants to wake somebody speaks of questions that are taken.
    call('DEL', P .. 'wake')
    break
  end
  local claim = guard(take, qid)
  if claim then
    out[#out + 1] = claim
    bytes = bytes + #claim[4] + #claim[5]
  end
end
return out
