-- publish makes a row final, unless it is.
--
-- KEYS[1] shard prefix
-- ARGV[1] row hash   ARGV[2] token of the publication   ARGV[3] result
-- ARGV[4] "1" when a denial stands in for the result, else "0"
-- ARGV[5] time that a final row is kept in ms
--
-- Returns {"missing"}, {"published", row...} or, when another publication stands,
-- {"duplicate", row...}.
--
-- Atomic, because of all publications one must be the first, in full: state, result
-- and the word to those who wait.
local row, token = ARGV[1], ARGV[2]
local key = row_key(row)
local r = call('HMGET', key, 'st', 'tok')
if not r[1] then return { 'missing' } end
if r[1] == 'f' then
  if r[2] == token then return answer('published', row) end
  return answer('duplicate', row)
end
call('HSET', key, 'st', 'f', 'res', ARGV[3], 'den', ARGV[4], 'fin', int(redis_now()), 'tok', token)
call('PEXPIRE', key, ARGV[5])
tell(row)
return answer('published', row)
