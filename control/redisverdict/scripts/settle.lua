-- settle writes a verdict unless there is one.
--
-- KEYS[1] shard prefix
-- ARGV[1] question   ARGV[2] writer   ARGV[3] verdict, or "" for the fallback
-- ARGV[4] ms for which a verdict is kept   ARGV[5] "worker" or "asker"
-- ARGV[6] digest of the content that the verdict is about, or "" for whatever stands
--
-- Returns {"won" or "stood" or "late", at, verdict that stands}, {"unknown"}, or
-- {"reused"} when the id stands for another content by now.
--
-- Atomic, because the first write must win, and whoever comes second must read
-- it. A writer that comes again after a lost reply has won once.
local qid, writer, verdict, keep = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local q, now = open(qid), redis_now()
-- An id may come back with another content, after Redis lost the first one.
local function other(digest) return ARGV[6] ~= '' and ARGV[6] ~= digest end

if not q then
  local digest, by, at, first = settled(qid)
  if digest and other(digest) then return { 'reused' } end
  if digest then return { by == writer and 'won' or 'stood', at, first } end
  if ARGV[5] == 'worker' or ARGV[6] == '' or verdict == '' then return { 'unknown' } end
  -- The question may still be on its way: it must find its verdict.
  finish(qid, { digest = ARGV[6] }, verdict, writer, now, keep, writer)
  return { 'won', now, verdict }
end
if other(q.digest or '') then return { 'reused' } end
local fate, by = 'won', writer
if ARGV[5] == 'worker' and now >= q.deadline then fate, by, verdict = 'late', 'deadline', '' end
if verdict == '' then verdict = q.fallback end
finish(qid, q, verdict, by, now, keep, writer)
if not verdict then return { 'unknown' } end
return { fate, now, verdict }
