-- release gives a message back.
--
-- KEYS[1] message
-- ARGV[1] owner
--
-- Returns the number of claims that ended, 0 or 1.
--
-- Atomic, because the lease may end, and another receiver claim the message,
-- between looking and deleting.
if redis.call('GET', KEYS[1]) ~= 'claim:' .. ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
