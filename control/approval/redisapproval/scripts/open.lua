-- open stores a row unless the same one is there.
--
-- KEYS[1] shard prefix
-- ARGV[1] row   ARGV[2] digest   ARGV[3] time that the row is kept in ms
-- ARGV[4..] field and value of the row's hash, in turn
--
-- Returns {"reused"} when the name stands for another row (nothing stored), else {"ok"}.
--
-- Atomic, because of two openings under one id one must see the other, and because
-- a row without its end of life would stay for ever.
local key = row_key(ARGV[1])
local known = call('HGET', key, 'dig')
if known and known ~= ARGV[2] then return { 'reused' } end
if not known then
  call('HSET', key, 'dig', ARGV[2])
  for i = 4, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
  call('PEXPIRE', key, ARGV[3])
end
return { 'ok' }
