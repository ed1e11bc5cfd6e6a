-- look reads how a question stands and lets an inbox hear of its verdict.
--
-- KEYS[1] shard prefix
-- ARGV[1] question   ARGV[2] inbox, or ""   ARGV[3] ms for which a verdict is kept
--
-- Returns how it stands (lib.lua, standing), or {"unknown"}.
--
-- Atomic, because a verdict that is written between the reading and the joining
-- would be heard by nobody.
return standing(ARGV[1], ARGV[2], redis_now(), tonumber(ARGV[3])) or { 'unknown' }
