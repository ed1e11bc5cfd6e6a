-- publish tells producers what a worker would add to an event, and drops what
-- dead workers said.
--
-- KEYS[1] shard prefix
-- ARGV[1] worker id   ARGV[2] JSON, or "" to withdraw   ARGV[3] age in ms after
--         which a worker is dropped
--
-- Returns 1.
--
-- Atomic, so that the age is judged by one clock.
local key, now = P .. 'workers', redis_now()
if ARGV[2] == '' then
  call('HDEL', key, ARGV[1])
else
  call('HSET', key, ARGV[1], int(now) .. ':' .. ARGV[2])
end
local all = call('HGETALL', key)
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^(%d+):')) or 0
  if now - at > tonumber(ARGV[3]) then call('HDEL', key, all[i]) end
end
return 1
