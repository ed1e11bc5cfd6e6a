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
  -- Ids need no more than a window from now; a later one sets its bucket's end anew.
  local bucket = bucket_of(redis_now(), tonumber(ARGV[2]))
  for n = bucket - 2, bucket do
    call('PEXPIRE', P .. 'seen:' .. op .. ':' .. int(n), ARGV[2], 'LT')
  end
  call('HDEL', P .. 'state:' .. op, 'bk')
  rest(op, tonumber(ARGV[3]), tonumber(ARGV[2]))
end
return had
