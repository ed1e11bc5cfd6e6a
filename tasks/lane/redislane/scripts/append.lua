-- append adds events to the lanes of operations, all or none for each operation.
--
-- KEYS[1] shard prefix
-- ARGV[1] idempotency window in ms   ARGV[2] idle time of an operation in ms
-- ARGV[3..] for each operation: its hash, its id, the number of its events, and
--           six per event: id, content digest, delay in ms, inbox, wait mode
--           ("" and "" when nobody waits), document
--
-- Returns one reply per operation: {"reused", id} when an id stands for other
-- content and {"fault", text} when a key has the wrong type (nothing stored in
-- either case), else {"ok", {sequence, duplicate, status...}, ...}: sequence 0
-- while delayed, status empty without a waiter.
--
-- Atomic, because the idempotency check, the number, the list and the wake-up
-- must not be torn apart by a crash: an event without a wake-up would be lost,
-- one without its id would be doubled by the caller's repeat.
local window, idle = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = redis_now()
local bucket = bucket_of(now, window)
local bucket_name = int(bucket)

-- look finds out which events were seen before, and the id that was reused.
local function look(op, s, first, last)
  local found, batch = {}, {}
  local seen_key = P .. 'seen:' .. op .. ':' .. bucket_name
  for i = first, last, 6 do
    local id, digest, seen = ARGV[i], ARGV[i + 1], nil
    if s.born == bucket_name and not s.delayed then
      seen = call('HGET', seen_key, id)
    elseif s.known then
      seen = find_seen(op, id, bucket)
    end
    local known = batch[id] or (seen and string.match(seen, ':(.*)$'))
    if known and known ~= digest then return nil, id end
    batch[id] = digest
    found[i] = seen or nil
  end
  return found
end

-- store pushes what is new and returns a row per event, and what was seen by then.
-- An event's number is its place in the list, so that it is right even when
-- somebody pushed an entry by hand.
local function store(op, s, found, first, last)
  local rows, fresh = {}, {}
  local lkey, seen_key = P .. 'lane:' .. op, P .. 'seen:' .. op .. ':' .. bucket_name
  for i = first, last, 6 do
    local id, digest, delay = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local seen = found[i] or fresh[id]
    if seen then
      rows[i] = { string.match(seen, '^(%d+):') or '0', '1' }
    elseif delay ~= '0' then
      -- Events of one batch that are due together keep their order by a fraction.
      seen = 'd:' .. digest
      call('ZADD', P .. 'due', now + tonumber(delay) + math.min(s.later, 1023) / 1024, op .. '|' .. id)
      call('HSET', P .. 'delayed:' .. op, id, digest .. ':' .. ARGV[i + 5])
      s.later = s.later + 1
      rows[i] = { '0', '0' }
    else
      local number = int(s.head + call('RPUSH', lkey, ARGV[i + 5]) - 1)
      seen = number .. ':' .. digest
      call('HSET', seen_key, id, seen)
      s.added = s.added + 1
      rows[i] = { number, '0' }
    end
    fresh[id] = seen
  end
  if s.added > 0 and s.bucket ~= bucket_name then call('PEXPIREAT', seen_key, forgotten_at(bucket, window)) end
  return rows, fresh
end

-- keep writes what the operation's state has to say of this call, and keeps its
-- hooks alive as long as it has events.
local function keep(op, operation, s)
  local key, set = P .. 'state:' .. op, {}
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  -- The list is asked, because an earlier call may have broken off after its push.
  local ready = not s.state and (s.added > 0 or call('EXISTS', P .. 'lane:' .. op) == 1)
  if s.added > 0 or s.later > 0 then
    if not s.known then
      put('op', operation)
      put('head', int(s.head))
      put('b', bucket_name)
    elseif now - s.refreshed > idle / 8 then
      -- The hooks of a new operation were registered with time to spare.
      call('PEXPIRE', P .. 'hooks:' .. op, int(idle + idle / 8))
      put('rf', int(now))
    end
    if s.added > 0 and s.bucket ~= bucket_name then put('bk', bucket_name) end
    if s.later > 0 then put('dl', '1') end
    if s.known and not s.state then call('PERSIST', key) end
  end
  if ready then
    announce(op)
    put('st', 'r')
  end
  if #set > 0 then call('HSET', key, unpack(set)) end
end

local function answer(op, rows, fresh, first, last)
  local out = { 'ok' }
  for i = first, last, 6 do
    local id, inbox, mode, row = ARGV[i], ARGV[i + 3], ARGV[i + 4], rows[i]
    if inbox ~= '' then
      local st = status(op, id, fresh[id])
      for j = 1, #st do row[#row + 1] = st[j] end
      if not settled(op, id, st, mode) then register(op, id, inbox, mode) end
    end
    out[#out + 1] = row
  end
  return out
end

local function append(op, operation, first, last)
  local v = call('HMGET', P .. 'state:' .. op, 'st', 'head', 'op', 'dl', 'b', 'bk', 'rf')
  local s = {
    state = filled(v[1]), head = tonumber(v[2] or '1'), known = v[2] and v[3], delayed = v[4],
    born = v[5], bucket = v[6], refreshed = tonumber(v[7] or '0'), added = 0, later = 0,
  }
  local found, reused = look(op, s, first, last)
  if reused then return { 'reused', reused } end
  local rows, fresh = store(op, s, found, first, last)
  keep(op, operation, s)
  return answer(op, rows, fresh, first, last)
end

local out, at = {}, 3
while at <= #ARGV do
  local last = at + 2 + 6 * tonumber(ARGV[at + 2])
  local reply, fault = guard(append, ARGV[at], ARGV[at + 1], at + 3, last)
  out[#out + 1] = reply or { 'fault', fault }
  at = last + 1
end
return out
