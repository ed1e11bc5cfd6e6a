-- hooks stores an operation's serialized hooks.
--
-- KEYS[1] shard prefix
-- ARGV[1] operation hash   ARGV[2] JSON array   ARGV[3] "replace" or "append"
-- ARGV[4] idle time in ms   ARGV[5] id of this call
--
-- Returns the JSON array now stored.
--
-- Atomic, because two appends must both be kept, in some order. A call is known
-- by its id for a minute, so that one that is repeated after a lost reply does
-- not register its hooks twice. They are kept for twice the idle time, so that a
-- first event that comes late finds its operation's hooks no older than an event.
local key = P .. 'hooks:' .. ARGV[1]
local value = ARGV[2]
if ARGV[3] == 'append' then
  local old = call('GET', key)
  if not call('SET', P .. 'added:' .. ARGV[1] .. ':' .. ARGV[5], '1', 'NX', 'PX', 60000) then return old or '[]' end
  if old and old ~= '[]' then
    if value == '[]' then
      value = old
    else
      value = string.sub(old, 1, -2) .. ',' .. string.sub(value, 2)
    end
  end
end
call('SET', key, value, 'PX', int(2 * tonumber(ARGV[4])))
call('HDEL', P .. 'state:' .. ARGV[1], 'ended')
return value
