-- ask hands a question over to the workers, or joins it when it is there.
--
-- KEYS[1] shard prefix
-- ARGV[1] question   ARGV[2] digest of its content   ARGV[3] ms until its deadline
-- ARGV[4] ms for which a verdict is kept   ARGV[5] inbox, or ""
-- ARGV[6] fallback verdict   ARGV[7] operation id   ARGV[8] phase   ARGV[9] event
-- ARGV[10] rounds   ARGV[11] trace, or ""
--
-- Returns {"reused"} when the id stands for another content, else how the
-- question stands (lib.lua, standing).
--
-- Atomic, because a question that is stored and not offered would wait until its
-- deadline, and one that is asked again must not be offered twice.
local qid, timeout, keep = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local key, now = P .. 'q:' .. qid, redis_now()
local digest = call('HGET', key, 'dig')
if digest then
  if digest ~= ARGV[2] then return { 'reused' } end
  return standing(qid, ARGV[5], now, keep) or { 'asked', ARGV[8], int(timeout) }
end
local inbox = ARGV[5]
if inbox ~= '' then inbox = inbox .. ' ' end
call('HSET', key, 'dig', ARGV[2], 'dl', int(now + timeout), 'to', ARGV[3], 'in', inbox, 'fb', ARGV[6],
  'op', ARGV[7], 'type', ARGV[8], 'ev', ARGV[9], 'rd', ARGV[10], 'tr', ARGV[11], 'st', 'w')
call('PEXPIRE', key, int(timeout + keep))
offer('RPUSH', qid, timeout + keep)
return { 'asked', ARGV[8], int(timeout) }
