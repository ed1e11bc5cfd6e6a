-- append adds events to one operation's lane, all or none.
--
-- KEYS[1] shard prefix
-- ARGV[1] operation hash   ARGV[2] operation id
-- ARGV[3] idempotency window in ms   ARGV[4] idle time of an operation in ms
-- ARGV[5..] six per event: id, content digest, delay in ms, inbox, wait mode
--           ("" and "" when nobody waits), document
--
-- Returns {"reused", id} when an id stands for other content (nothing stored),
-- else {"ok", {sequence, duplicate, status...}, ...}: sequence 0 while delayed,
-- status empty without a waiter.
--
-- Atomic, because the idempotency check, the number, the list and the wake-up
-- must not be torn apart by a crash: an event without a wake-up would be lost,
-- one without its id would be doubled by the caller's repeat.
local op, operation = ARGV[1], ARGV[2]
local window, idle = tonumber(ARGV[3]), tonumber(ARGV[4])
local now = redis_now()
local bucket = bucket_of(now, window)
local skey, lkey, seen_key = P .. 'state:' .. op, P .. 'lane:' .. op, P .. 'seen:' .. op .. ':' .. int(bucket)

local s = call('HMGET', skey, 'st', 'head', 'op')
local state, head, known_op = s[1], tonumber(s[2] or '1'), s[2] and s[3]

local found, batch = {}, {}
for i = 5, #ARGV, 6 do
  local id, digest = ARGV[i], ARGV[i + 1]
  -- An operation's state outlives the ids of its events.
  local seen = known_op and find_seen(op, id, bucket)
  local known = batch[id] or (seen and string.match(seen, ':(.*)$'))
  if known and known ~= digest then return { 'reused', id } end
  batch[id] = digest
  found[i] = seen or nil
end

-- An event's number is its place in the list, so that it is right even when
-- somebody pushed an entry by hand.
local added, delayed, fresh, rows = false, 0, {}, {}
for i = 5, #ARGV, 6 do
  local id, digest, delay = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local seen = found[i] or fresh[id]
  if seen then
    rows[i] = { string.match(seen, '^(%d+):') or '0', '1' }
  elseif delay > 0 then
    -- Events of one batch that are due together keep their order by a fraction.
    seen = 'd:' .. digest
    call('ZADD', P .. 'due', now + delay + math.min(delayed, 1023) / 1024, op .. '|' .. id)
    call('HSET', P .. 'delayed:' .. op, id, digest .. ':' .. ARGV[i + 5])
    delayed = delayed + 1
    rows[i] = { '0', '0' }
  else
    local number = int(head + call('RPUSH', lkey, ARGV[i + 5]) - 1)
    seen = number .. ':' .. digest
    call('HSET', seen_key, id, seen)
    added = true
    rows[i] = { number, '0' }
  end
  fresh[id] = seen
end

if added then call('PEXPIRE', seen_key, window) end
if delayed > 0 then call('HSET', skey, 'dl', '1') end
if added and not (known_op or state) then
  -- The hooks of a new operation were registered with time to spare.
  announce(op)
  call('HSET', skey, 'op', operation, 'head', int(head), 'st', 'r')
else
  if not known_op and (added or delayed > 0) then call('HSET', skey, 'op', operation, 'head', int(head)) end
  if added or delayed > 0 then
    call('PEXPIRE', P .. 'hooks:' .. op, idle)
    if not state then call('PERSIST', skey) end
  end
  -- The list is asked, because an earlier call may have broken off after its push.
  if not state and (added or call('EXISTS', lkey) == 1) then make_ready(op) end
end

local out = { 'ok' }
for i = 5, #ARGV, 6 do
  local id, inbox, mode, row = ARGV[i], ARGV[i + 3], ARGV[i + 4], rows[i]
  if inbox ~= '' then
    local st = status(op, id, fresh[id])
    for j = 1, #st do row[#row + 1] = st[j] end
    if not settled(op, id, st, mode) then register(op, id, inbox, mode) end
  end
  out[#out + 1] = row
end
return out
