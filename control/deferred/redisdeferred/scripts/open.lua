-- open stores a row unless the same one is there.
--
-- KEYS[1] shard prefix
-- ARGV[1] row hash   ARGV[2] row id   ARGV[3] placeholder   ARGV[4] its digest
-- ARGV[5] result, when the row is final from the start, or ""
-- ARGV[6] time that the row is kept in ms   ARGV[7] controls recorded with it
--
-- Returns {"reused"} when the id stands for another placeholder (nothing stored),
-- else {"ok", row...}.
--
-- Atomic, because of two openings under one id one must see the other, and because
-- a row without its end of life would stay for ever.
local row, digest = ARGV[1], ARGV[4]
local key = row_key(row)
local known = call('HGET', key, 'dig')
if known and known ~= digest then return { 'reused' } end
if not known then
  local now = int(redis_now())
  call('HSET', key, 'id', ARGV[2], 'dig', digest, 'doc', ARGV[3], 'rec', ARGV[7], 'at', now, 'st', 'o')
  if ARGV[5] ~= '' then call('HSET', key, 'st', 'f', 'res', ARGV[5], 'fin', now) end
  call('PEXPIRE', key, ARGV[6])
end
return answer('ok', row)
