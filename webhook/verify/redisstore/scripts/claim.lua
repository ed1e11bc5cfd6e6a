-- claim takes a message into one receiver's hands.
--
-- KEYS[1] message
-- ARGV[1] owner, which no other claim has   ARGV[2] lease in ms
--
-- Returns "new" when the claim is taken, or was taken by the same owner before;
-- "done" when the message is finished; "in_progress" when another holds it.
--
-- Atomic, because two deliveries that both find nothing would both run.
local held = redis.call('GET', KEYS[1])
if held == 'done' then return 'done' end
if held and held ~= 'claim:' .. ARGV[1] then return 'in_progress' end
redis.call('SET', KEYS[1], 'claim:' .. ARGV[1], 'PX', ARGV[2])
return 'new'
