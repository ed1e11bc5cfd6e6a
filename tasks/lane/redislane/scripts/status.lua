-- status says what has become of a task and lets an inbox wait for the rest.
--
-- KEYS[1] shard prefix
-- ARGV[1] operation hash   ARGV[2] task id   ARGV[3] inbox or ""   ARGV[4] wait mode
-- ARGV[5] idempotency window in ms
--
-- Returns {known, attempted, sequence, hook, outcome, ...}.
--
-- Atomic, because an outcome stored between the look and the registration would
-- never be heard of.
local op, id, inbox, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local bucket = bucket_of(redis_now(), tonumber(ARGV[5]))
local st = status(op, id, find_seen(op, id, bucket))
if inbox ~= '' and not settled(op, id, st, mode) then register(op, id, inbox, mode) end
return st
