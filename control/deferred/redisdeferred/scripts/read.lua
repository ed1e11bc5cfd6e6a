-- read says how a row stands and lets an inbox listen until it is final.
--
-- KEYS[1] shard prefix
-- ARGV[1] row hash   ARGV[2] inbox or ""   ARGV[3] time that a listener is kept in ms
--
-- Returns {"missing"} or {"ok", row...}.
--
-- Atomic, because a row that became final between the look and the registration
-- would never be heard of.
local row, inbox, ttl = ARGV[1], ARGV[2], ARGV[3]
local state = call('HGET', row_key(row), 'st')
if not state then return { 'missing' } end
if state ~= 'f' and inbox ~= '' then
  local listeners, now = listeners_key(row), redis_now()
  call('ZADD', listeners, int(now), inbox)
  -- A process that has not looked for so long is gone.
  call('ZREMRANGEBYSCORE', listeners, '-inf', int(now - tonumber(ttl)))
  call('PEXPIRE', listeners, ttl)
end
return answer('ok', row)
