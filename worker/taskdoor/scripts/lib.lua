-- lib is put in front of every script of the door.
--
-- All keys of an operation start with KEYS[1], which holds the operation's hash as
-- a tag, so that they lie in one slot:
--   <prefix>w:<work>    HASH  tok, until: claim and its end; done: 1; uns: 1 when a
--                             publish was left without an answer
--   <prefix>s:<stream>  HASH  next: the number that should come next; due: its next
--                             attempt; run: 1 while it is worked on; miss: since when
--                             a later one waits for one that nobody saw
-- Times are milliseconds of this server's clock, the only one there is.
local call = redis.call
local P = KEYS[1]
local function redis_now()
  local t = call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local function int(n) return string.format('%.0f', n) end

-- pass lets a stream go on behind a number.
local function pass(stream, sequence, window)
  if sequence == 0 then return end
  local key = P .. 's:' .. stream
  local next_one = tonumber(call('HGET', key, 'next') or '1')
  if next_one <= sequence then
    call('DEL', key)
    call('HSET', key, 'next', int(sequence + 1))
  end
  call('PEXPIRE', key, window)
end
