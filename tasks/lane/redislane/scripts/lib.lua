-- lib.lua is put in front of every transition. KEYS[1] is the shard's prefix,
-- "<namespace>:{<shard>}:"; every key that a script touches starts with it and
-- therefore shares its slot. Scripts build those keys themselves, because which
-- queues a call touches is only known inside (a ready list, a due set).
--
-- A queue id is "<op>" for a lane and "<op>:<hook>" for a parked queue, where
-- <op> is the 22-character hash of an operation id. "<op>|<task id>" in the due
-- set is a delayed event.
local P = KEYS[1]
local call = redis.call
local OP_LENGTH = 22

-- A whole number in digits; Lua's own way would round large ones.
local function int(n) return string.format('%d', n) end

-- A field that was cleared is as good as one that was never set.
local function filled(v)
  if v and v ~= '' then return v end
  return nil
end

local function redis_now()
  local t = call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function op_of(qid) return string.sub(qid, 1, OP_LENGTH) end
local function hook_of(qid)
  if string.sub(qid, OP_LENGTH + 1, OP_LENGTH + 1) == ':' then return string.sub(qid, OP_LENGTH + 2) end
  return nil
end
-- valid tells a queue id from what somebody wrote by hand.
local function valid(qid)
  return #qid == OP_LENGTH or (#qid > OP_LENGTH + 1 and hook_of(qid) ~= nil)
end
local function state_key(qid)
  if hook_of(qid) then return P .. 'park:' .. qid end
  return P .. 'state:' .. qid
end
local function list_key(qid)
  if hook_of(qid) then return P .. 'parked:' .. qid end
  return P .. 'lane:' .. qid
end

-- Sets of hook keys are kept as one string, " a b ", short and cheap to search.
local function has(set, member)
  return set and string.find(set, ' ' .. member .. ' ', 1, true) ~= nil
end
local function add(set, member)
  if not set or set == '' then return ' ' .. member .. ' ' end
  if has(set, member) then return set end
  return set .. member .. ' '
end
local function remove(set, member)
  local from, to = string.find(set or '', ' ' .. member .. ' ', 1, true)
  if not from then return set or '' end
  local rest = string.sub(set, 1, from) .. string.sub(set, to + 1)
  if rest == ' ' then return '' end
  return rest
end

-- The list comes before the state: when the list is broken, the queue must not
-- look ready for ever. A wake token only says "look at the ready list"; a lost
-- or surplus one is harmless. The first queue on the list leaves one, and a claim
-- that leaves queues behind passes it on.
local function announce(qid)
  if call('RPUSH', P .. 'ready', qid) == 1 then call('RPUSH', P .. 'wake', '1') end
end
local function make_ready(qid)
  announce(qid)
  call('HSET', state_key(qid), 'st', 'r')
end

-- settle_down lets an operation's state expire once nothing of it is pending:
-- after the idle time, or after the window when the operation has ended.
local function settle_down(op, parked, delayed, ttl_ms)
  if delayed or (parked and parked ~= '') then return end
  call('PEXPIRE', P .. 'state:' .. op, ttl_ms)
end

-- rest settles a lane down that is neither ready nor claimed.
local function rest(op, idle_ms, window_ms)
  local s = call('HMGET', P .. 'state:' .. op, 'st', 'pk', 'ended', 'dl')
  if not filled(s[1]) then settle_down(op, s[2], s[4], s[3] and window_ms or idle_ms) end
end

-- unpark ends a parked queue that is empty, in the same step that emptied it.
local function unpark(qid, idle_ms, window_ms)
  local op = op_of(qid)
  call('DEL', P .. 'park:' .. qid)
  call('ZREM', P .. 'due', qid)
  call('SREM', P .. 'blocked', qid)
  local key = P .. 'state:' .. op
  local parked = call('HGET', key, 'pk')
  if parked then call('HSET', key, 'pk', remove(parked, hook_of(qid))) end
  rest(op, idle_ms, window_ms)
end

-- guard runs one queue's part of a script. A key of the wrong type breaks that
-- queue only, and the others of the call go on.
local function guard(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result, nil end
  if type(result) == 'table' then result = result.err end
  return nil, tostring(result)
end

-- split_parked takes "<sequence>:<ms>:<document>" apart; nothing for an entry
-- that somebody wrote by hand. Numbers above 15 digits would not be exact.
local function split_parked(entry)
  local seq, at, doc = string.match(entry, '^(%d+):(%d+):(.*)$')
  if not seq or #seq > 15 or #at > 15 then return nil end
  return tonumber(seq), doc
end

-- read takes up to n entries from the head, stopping early at about 256 KiB, so
-- that a batch of large documents does not hold up the shard.
local function read(list, n)
  local out, bytes, at = {}, 0, 0
  while at < n and bytes < 262144 do
    local upto = math.min(at + 8, n)
    local part = call('LRANGE', list, at, upto - 1)
    for i = 1, #part do
      out[#out + 1] = part[i]
      bytes = bytes + #part[i]
    end
    if #part < upto - at then break end
    at = upto
  end
  return out
end

-- pending says whether a delivery of the task is still parked or waiting.
local function pending(op, task)
  local all = call('HVALS', P .. 'outcome:' .. op .. ':' .. task)
  for i = 1, #all do
    local c = string.sub(all[i], 1, 1)
    if c == 'p' or c == 'w' then return true end
  end
  return false
end

-- notify tells the inboxes whose wait is over. An inbox is a hint that expires;
-- the outcome is the truth.
local function notify(op, task, attempted)
  if not attempted then return end
  local waiters = P .. 'waiters:' .. op
  local list = call('HGET', waiters, task)
  if not list then return end
  local keep, open = '', pending(op, task)
  for inbox, mode in string.gmatch(list, '([%w_-]+)/(%a+) ') do
    if mode == 'first' or not open then
      local key = P .. 'inbox:' .. inbox
      call('RPUSH', key, op .. '|' .. task)
      call('PEXPIRE', key, 60000)
    else
      keep = keep .. inbox .. '/' .. mode .. ' '
    end
  end
  if keep == '' then call('HDEL', waiters, task) else call('HSET', waiters, task, keep) end
end

-- age_outcome lets what a task came to expire one window after its last hook was
-- settled. While one is pending the outcome must stay, or the delivery would look
-- delivered; 30 days more only clear what nobody will settle.
local function age_outcome(op, task, window_ms)
  local ttl = window_ms
  if pending(op, task) then ttl = window_ms + 2592000000 end
  call('PEXPIRE', P .. 'outcome:' .. op .. ':' .. task, int(ttl))
end

local function set_outcome(op, task, hook, value, window_ms)
  if task == '' then return end
  call('HSET', P .. 'outcome:' .. op .. ':' .. task, hook, value)
  age_outcome(op, task, window_ms)
end

local function bucket_of(now, window_ms)
  return math.floor(now / math.ceil(window_ms / 2))
end

-- forgotten_at is when a bucket's ids go: one window after the bucket has ended.
local function forgotten_at(bucket, window_ms)
  return int((bucket + 1) * math.ceil(window_ms / 2) + window_ms)
end

-- find_seen looks an id up in the buckets of the idempotency window and among
-- the delayed events, and returns "<sequence>:<digest>" or "d:<digest>". A bucket
-- is half a window wide and expires one window after its end. A delayed event
-- enters the window when it is appended.
local function find_seen(op, id, bucket)
  local base = P .. 'seen:' .. op .. ':'
  local v = call('HGET', base .. int(bucket), id)
  if v then return v end
  local one, two, delayed = base .. int(bucket - 1), base .. int(bucket - 2), P .. 'delayed:' .. op
  if call('EXISTS', one, two, delayed) == 0 then return nil end
  v = call('HGET', one, id) or call('HGET', two, id)
  if v then return v end
  v = call('HGET', delayed, id)
  return v and 'd:' .. (string.match(v, '^([^:]*):') or '')
end

-- status answers what has become of a task: {known, attempted, sequence,
-- hook, outcome, hook, outcome, ...}. A task whose lane is forgotten was settled.
local function status(op, id, seen)
  if not seen then return { '0', '0', '0' } end
  local digits = string.match(seen, '^(%d+):')
  if not digits then return { '1', '0', '0' } end
  local seq = tonumber(digits)
  local head = tonumber(call('HGET', P .. 'state:' .. op, 'head'))
  local attempted = (not head) or seq < head
  local out = { '1', attempted and '1' or '0', int(seq) }
  local all = call('HGETALL', P .. 'outcome:' .. op .. ':' .. id)
  for i = 1, #all do out[#out + 1] = all[i] end
  return out
end

local function settled(op, id, st, mode)
  if st[1] == '0' then return true end
  if st[2] == '0' then return false end
  return mode == 'first' or not pending(op, id)
end

local function register(op, id, inbox, mode)
  local key = P .. 'waiters:' .. op
  local list = call('HGET', key, id) or ''
  local me = inbox .. '/' .. mode .. ' '
  if not string.find(' ' .. list, ' ' .. me, 1, true) then call('HSET', key, id, list .. me) end
  call('PEXPIRE', key, 90000000)
  call('HSET', P .. 'state:' .. op, 'w', '1')
end
