-- finish says that a piece of work is done.
--
-- KEYS[1] prefix of the operation
-- ARGV[1] work   ARGV[2] stream   ARGV[3] sequence, 0 for none   ARGV[4] token
-- ARGV[5] window in ms
--
-- Returns 1 when the claim was still held, else 0.
--
-- Atomic, because work that is done and not yet passed would hold up its stream.
local work = P .. 'w:' .. ARGV[1]
local held = call('HGET', work, 'tok') == ARGV[4]
if held then call('HDEL', work, 'tok', 'until') end
call('HSET', work, 'done', '1')
call('PEXPIRE', work, ARGV[5])
pass(ARGV[2], tonumber(ARGV[3]), ARGV[5])
return held and 1 or 0
