-- look reads how a question stands and lets an inbox hear of its verdict.
--
-- KEYS[1] shard prefix
-- ARGV[1] question   ARGV[2] inbox, or ""   ARGV[3] ms for which a verdict is kept
--
-- Returns {"settled", at, verdict, digest}, {"asked", ms until the deadline,
-- fallback verdict, digest}, or {"unknown"}. After the deadline the fallback
-- stands, whether somebody looked in time or not.
--
-- Atomic, because a verdict that is written between the reading and the joining
-- would be heard by nobody.
local qid, inbox = ARGV[1], ARGV[2]
local digest, _, at, verdict = settled(qid)
if digest then return { 'settled', at, verdict, digest } end
local q, now = open(qid), redis_now()
if not q then return { 'unknown' } end
if now >= q.deadline then
  finish(qid, q, q.fallback, 'deadline', now, tonumber(ARGV[3]), '')
  if not q.fallback then return { 'unknown' } end
  return { 'settled', now, q.fallback, q.digest or '' }
end
local inboxes = q.inboxes or ''
if inbox ~= '' and not string.find(' ' .. inboxes, ' ' .. inbox .. ' ', 1, true) then
  call('HSET', P .. 'q:' .. qid, 'in', inboxes .. inbox .. ' ')
end
return { 'asked', q.deadline - now, q.fallback or '', q.digest or '' }
