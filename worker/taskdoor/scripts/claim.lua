-- claim asks for a piece of work.
--
-- KEYS[1] prefix of the operation
-- ARGV[1] work   ARGV[2] stream   ARGV[3] sequence, 0 for none   ARGV[4] 1 to pass
-- although an earlier message is missing   ARGV[5] token   ARGV[6] lease in ms
-- ARGV[7] {window, patience, shortest wait, wait for running work} in ms, by commas
--
-- Returns {state, wait in ms, late, gap, unsettled}.
--
-- Atomic, because two processes that both see no claim would both work.
local now = redis_now()
local work, stream, sequence, force = P .. 'w:' .. ARGV[1], P .. 's:' .. ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local lease = tonumber(ARGV[6])
local window, patience, shortest, running = ARGV[7]:match('^(%d+),(%d+),(%d+),(%d+)$')
patience, shortest = tonumber(patience), tonumber(shortest)

local w = call('HMGET', work, 'done', 'until', 'uns', 'tok')
if w[1] then return { 'done', 0, 0, 0, 0 } end
local left = tonumber(w[2] or '0') - now
-- The client sent it again because the reply was lost.
if left > 0 and w[4] == ARGV[5] then return { 'granted', 0, 0, 0, tonumber(w[3] or '0') } end
if left > 0 then return { 'busy', math.max(left, shortest), 0, 0, 0 } end

local late, gap = 0, 0
if sequence > 0 then
  local s = call('HMGET', stream, 'next', 'due', 'run', 'miss')
  local next_one = tonumber(s[1] or '1')
  if sequence > next_one and not force then
    local wait = 0
    if s[2] then
      local due = tonumber(s[2])
      if now < due + patience then
        if s[3] then wait = tonumber(running) else wait = math.max(due - now + shortest, shortest) end
      end
    else
      local miss = tonumber(s[4] or '0')
      if miss == 0 then
        miss = now
        call('HSET', stream, 'miss', int(now))
        call('PEXPIRE', stream, window)
      end
      wait = miss + patience - now
      if wait > 0 then wait = math.max(wait, shortest) end
    end
    if wait > 0 then return { 'early', wait, 0, 0, 0 } end
  end
  if sequence < next_one then late = 1 end
  if sequence > next_one then gap = 1 end
  if late == 0 then
    call('DEL', stream)
    call('HSET', stream, 'next', int(sequence), 'run', '1', 'due', int(now + lease))
    call('PEXPIRE', stream, math.max(tonumber(window), lease))
  end
end
call('HSET', work, 'tok', ARGV[5], 'until', int(now + lease))
call('PEXPIRE', work, math.max(tonumber(window), lease))
return { 'granted', 0, late, gap, tonumber(w[3] or '0') }
