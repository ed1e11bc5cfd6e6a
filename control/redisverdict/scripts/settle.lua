-- settle writes a verdict unless there is one.
--
-- KEYS[1] shard prefix
-- ARGV[1] question   ARGV[2] writer   ARGV[3] verdict, or "" for the fallback
-- ARGV[4] ms for which a verdict is kept   ARGV[5] "worker" or "asker"
-- ARGV[6] digest, or ""   ARGV[7] phase, with a digest
--
-- Returns {"won" or "stood" or "late", at, verdict that stands}, or {"unknown"}.
--
-- Atomic, because the first write must win, and whoever comes second must read
-- it. A writer that comes again after a lost reply has won once.
local qid, keep = ARGV[1], tonumber(ARGV[4])
local key, now = P .. 'q:' .. qid, redis_now()
local h = call('HMGET', key, 'v', 'at', 'by', 'dl', 'fb', 'in')
if h[1] then
  return { h[3] == ARGV[2] and 'won' or 'stood', h[2] or '0', h[1] }
end
if not h[4] then
  if ARGV[6] == '' or ARGV[3] == '' then return { 'unknown' } end
  -- The question may still be on its way: it must find its verdict.
  call('HSET', key, 'dig', ARGV[6], 'type', ARGV[7])
end
local verdict, fate = ARGV[3], 'won'
if ARGV[5] == 'worker' and now >= tonumber(h[4]) then verdict, fate = '', 'late' end
if verdict == '' then verdict = h[5] end
finish(qid, verdict, fate == 'late' and 'deadline' or ARGV[2], now, keep, h[6], ARGV[2])
if not verdict then return { 'unknown' } end
return { fate, int(now), verdict }
