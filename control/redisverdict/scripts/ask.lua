-- ask hands a question over to the workers, or joins it when it is there.
--
-- KEYS[1] shard prefix
-- ARGV[1] question   ARGV[2] digest of its content   ARGV[3] ms until its deadline
-- ARGV[4] ms for which a verdict is kept   ARGV[5] inbox, or ""
-- ARGV[6] fallback verdict   ARGV[7] document
--
-- Returns {"reused"} when the id stands for another content, {"settled", at,
-- verdict}, or {"asked", ms until the deadline}.
--
-- Atomic, because a question that is stored and not offered would wait until its
-- deadline, and one that is asked again must not be offered twice.
local qid, timeout, keep, inbox = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local key, now = P .. 'q:' .. qid, redis_now()
if inbox ~= '' then inbox = inbox .. ' ' end

local function join()
  local digest, _, at, verdict = settled(qid)
  if digest then
    if digest ~= ARGV[2] then return { 'reused' } end
    return { 'settled', at, verdict }
  end
  local q = open(qid)
  if not q or q.digest ~= ARGV[2] then return { 'reused' } end
  if now >= q.deadline then
    finish(qid, q, q.fallback, 'deadline', now, keep, '')
    return { 'settled', now, q.fallback or '' }
  end
  if not string.find(' ' .. (q.inboxes or ''), ' ' .. inbox, 1, true) then
    call('HSET', key, 'in', (q.inboxes or '') .. inbox)
  end
  return { 'asked', q.deadline - now }
end

if call('EXISTS', key, P .. 'v:' .. qid) > 0 then return join() end
-- Where no worker answers, nobody else takes what is over off the list.
for _ = 1, 4 do
  local head = call('LINDEX', P .. 'asks', 0)
  if not head or call('EXISTS', P .. 'q:' .. head) == 1 then break end
  call('LPOP', P .. 'asks')
end
call('HSET', key, 'dl', now + timeout, 'dig', ARGV[2], 'in', inbox, 'fb', ARGV[6], 'st', 'w', 'doc', ARGV[7])
call('PEXPIRE', key, timeout + keep)
offer('RPUSH', qid, timeout + keep)
return { 'asked', timeout }
