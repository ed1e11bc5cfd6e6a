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
local PER_EVENT = 6

-- look finds out which events were seen before, and the id that was reused. An
-- operation that began in this bucket has no older ids.
local function look(op, v, first, last)
  local found, batch, seen_key = {}, {}, P .. 'seen:' .. op .. ':' .. bucket_name
  local young = v.born == bucket_name and not v.delayed
  for i = first, last, PER_EVENT do
    local id, digest, seen = ARGV[i], ARGV[i + 1], nil
    if young then
      seen = call('HGET', seen_key, id)
    elseif v.known then
      seen = find_seen(op, id, bucket)
    end
    local known = batch[id] or (seen and string.match(seen, ':(.*)$'))
    if known and known ~= digest then return nil, id end
    batch[id] = digest
    found[i] = seen or nil
  end
  return found
end

-- put_off keeps an event until it is due. Those of one call that are due together
-- keep their order by a fraction.
local function put_off(op, i, place)
  call('ZADD', P .. 'due', now + tonumber(ARGV[i + 2]) + math.min(place, 1023) / 1024, op .. '|' .. ARGV[i])
  call('HSET', P .. 'delayed:' .. op, ARGV[i], ARGV[i + 1] .. ':' .. ARGV[i + 5])
end

-- push appends an event and remembers its id. An event's number is its place in
-- the list, so that it is right even when somebody pushed an entry by hand.
local function push(op, i, head)
  local number = int(head + call('RPUSH', P .. 'lane:' .. op, ARGV[i + 5]) - 1)
  call('HSET', P .. 'seen:' .. op .. ':' .. bucket_name, ARGV[i], number .. ':' .. ARGV[i + 1])
  return number
end

-- keep writes what the operation's state has to say of events that were added,
-- and keeps its hooks alive as long as it has events.
local function keep(op, operation, v, added, later)
  local set = {}
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if added > 0 and v.bucket ~= bucket_name then
    call('PEXPIREAT', P .. 'seen:' .. op .. ':' .. bucket_name, forgotten_at(bucket, window))
    put('bk', bucket_name)
  end
  if later > 0 then put('dl', '1') end
  if not v.known then
    put('op', operation)
    put('head', int(v.head))
    put('b', bucket_name)
  else
    if now - v.refreshed > idle / 8 then
      -- The hooks of a new operation were registered with time to spare.
      call('PEXPIRE', P .. 'hooks:' .. op, int(idle + idle / 8))
      put('rf', int(now))
    end
    if not v.state then call('PERSIST', P .. 'state:' .. op) end
  end
  if added > 0 and not v.state then
    announce(op)
    put('st', 'r')
  end
  if #set > 0 then call('HSET', P .. 'state:' .. op, unpack(set)) end
end

-- wait_for adds to a row how its event stands, and lets its inbox hear of the rest.
local function wait_for(op, i, seen, row)
  local id, inbox, mode = ARGV[i], ARGV[i + 3], ARGV[i + 4]
  if inbox == '' then return end
  local st = status(op, id, seen)
  for j = 1, #st do row[#row + 1] = st[j] end
  if not settled(op, id, st, mode) then register(op, id, inbox, mode) end
end

local function append(op, operation, first, last)
  local h = call('HMGET', P .. 'state:' .. op, 'st', 'head', 'op', 'dl', 'b', 'bk', 'rf')
  local v = {
    state = filled(h[1]), head = tonumber(h[2] or '1'), known = h[2] and h[3], delayed = h[4],
    born = h[5], bucket = h[6], refreshed = tonumber(h[7] or '0'),
  }
  local found, reused = look(op, v, first, last)
  if reused then return { 'reused', reused } end

  local added, later, out, fresh = 0, 0, { 'ok' }, {}
  for i = first, last, PER_EVENT do
    local id, seen = ARGV[i], found[i] or fresh[ARGV[i]]
    if seen then
      out[#out + 1] = { string.match(seen, '^(%d+):') or '0', '1' }
    elseif ARGV[i + 2] ~= '0' then
      put_off(op, i, later)
      seen, later = 'd:', later + 1
      out[#out + 1] = { '0', '0' }
    else
      local number = push(op, i, v.head)
      seen, added = number .. ':', added + 1
      out[#out + 1] = { number, '0' }
    end
    fresh[id] = seen
  end
  if added > 0 or later > 0 then
    keep(op, operation, v, added, later)
  elseif not v.state and call('EXISTS', P .. 'lane:' .. op) == 1 then
    -- An earlier call broke off after its push.
    make_ready(op)
  end
  for i = first, last, PER_EVENT do
    wait_for(op, i, fresh[ARGV[i]], out[(i - first) / PER_EVENT + 2])
  end
  return out
end

local out, at = {}, 3
while at <= #ARGV do
  local last = at + 2 + PER_EVENT * tonumber(ARGV[at + 2])
  local reply, fault = guard(append, ARGV[at], ARGV[at + 1], at + 3, last)
  out[#out + 1] = reply or { 'fault', fault }
  at = last + 1
end
return out
