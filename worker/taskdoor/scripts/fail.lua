-- fail gives a piece of work back.
--
-- KEYS[1] prefix of the operation
-- ARGV[1] work   ARGV[2] stream   ARGV[3] sequence, 0 for none   ARGV[4] token
-- ARGV[5] window in ms   ARGV[6] time to the next attempt in ms, -1 when there is none
-- ARGV[7] 1 when a publish was left without an answer
--
-- Returns 1 when the claim was still held, else 0 and the stream is left alone.
--
-- Atomic, because a stream must not see its next number neither running nor due.
local work, stream, sequence, after = P .. 'w:' .. ARGV[1], P .. 's:' .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
if ARGV[7] == '1' then
  call('HSET', work, 'uns', '1')
  call('PEXPIRE', work, ARGV[5])
end
if call('HGET', work, 'tok') ~= ARGV[4] then return 0 end
call('HDEL', work, 'tok', 'until')
if sequence == 0 then return 1 end
if after < 0 then
  pass(ARGV[2], sequence, ARGV[5])
  return 1
end
if tonumber(call('HGET', stream, 'next') or '1') == sequence then
  call('DEL', stream)
  call('HSET', stream, 'next', int(sequence), 'due', int(redis_now() + after))
  call('PEXPIRE', stream, math.max(tonumber(ARGV[5]), after))
end
return 1
