-- forget ends an operation: its hooks go, its pending work stays.
--
-- KEYS[1] shard prefix
-- ARGV[1] operation hash   ARGV[2] idempotency window in ms   ARGV[3] idle time in ms
--
-- Returns 1 when hooks were registered, else 0.
--
-- Atomic, because an event appended in between must find either a live
-- operation or an ended one.
local op = ARGV[1]
local had = call('DEL', P .. 'hooks:' .. op)
if call('EXISTS', P .. 'state:' .. op) == 1 then
  call('HSET', P .. 'state:' .. op, 'ended', '1')
  rest(op, tonumber(ARGV[3]), tonumber(ARGV[2]))
end
return had
