-- progress applies steps to queues that a worker holds: settle the head's
-- hooks, move the head, hand over the next entries, or give the queue back.
--
-- KEYS[1] shard prefix
-- ARGV[1] JSON array of steps: [queue id, token, entries wanted, 1 to release,
--         action, ...]; an action is [verb, sequence, task id] for a pop, else
--         [verb, sequence, task id, hook key, delay in ms, attempt, outcome JSON,
--         dead letter id]
-- ARGV[2] idempotency window in ms   ARGV[3] idle time of an operation in ms
--
-- Returns {now, ready queues, reply, ...}, one reply per step: {"lost"},
-- {"fault", text} when a key has the wrong type, or
-- {"held" or "released", head sequence, attempt, settled, parked, unparked,
-- {entry, ...}}, of which a lane with nothing to tell gives the first alone.
--
-- Atomic per step, because a head that is settled, parked and popped in pieces
-- would be delivered twice or skipped after a crash. Each action names the
-- sequence of the head that it means and is skipped when that is gone, so that a
-- step whose reply was lost can be sent again.
local now = redis_now()
local window, idle = tonumber(ARGV[2]), tonumber(ARGV[3])

-- Steps travel as arrays, because decoding names for each of them would cost more
-- than all the rest.
local FIRST_ACTION = 5
local function named(a)
  local hook = a[4]
  if hook == '' then hook = nil end
  return { v = a[1], s = a[2], i = a[3], h = hook, d = a[5], n = a[6], o = a[7], x = a[8] }
end

-- A letter names the parked queue that a replay joins; poison has none.
local function bury(op, qid, a, doc)
  if not a.h then qid = op end
  local key = P .. 'dead:' .. a.x
  call('HSET', key, 'q', qid, 'task', a.i, 'seq', int(a.s), 'o', a.o, 'at', int(now), 'doc', doc,
    'op', call('HGET', P .. 'state:' .. op, 'op') or '')
  call('ZADD', P .. 'dead', now, a.x)
end

local function park_behind(qid, a, doc)
  call('RPUSH', P .. 'parked:' .. qid, int(a.s) .. ':' .. int(now) .. ':' .. doc)
end

local function wait_behind(op, qid, a, doc)
  set_outcome(op, a.i, a.h, 'w0:' .. a.o, window)
  park_behind(qid, a, doc)
end

local function park(op, qid, a, doc)
  call('HSET', P .. 'park:' .. qid, 'st', 'p', 'att', a.n, 'due', now + a.d, 'o', a.o)
  call('ZADD', P .. 'due', now + a.d, qid)
  call('SADD', P .. 'blocked', qid)
  set_outcome(op, a.i, a.h, 'p' .. int(now + a.d) .. ':' .. a.o, window)
  park_behind(qid, a, doc)
end

-- settle_hook applies one action to one hook of the lane's head. s is the head's
-- state in hand: head, done, parked, unparked. What cannot be repeated comes last.
local function settle_hook(op, a, s)
  if a.v == 'delivered' then
    s.done = add(s.done, a.h)
    return
  end
  if a.v == 'discard' then
    set_outcome(op, a.i, a.h, 'k0:' .. a.o, window)
    s.done = add(s.done, a.h)
    return
  end
  if a.v == 'behind' and not has(s.parked, a.h) then
    s.unparked = add(s.unparked, a.h)
    return
  end
  local doc = call('LINDEX', P .. 'lane:' .. op, 0)
  if not doc then return end
  local qid = a.h and (op .. ':' .. a.h)
  if a.v == 'bury' then
    bury(op, qid, a, doc)
    -- Of poison nobody knows the hooks: its outcome stands for all of them.
    set_outcome(op, a.i, a.h or '', 'x0:' .. a.o, window)
    if not a.h then return end
  elseif a.v == 'behind' or has(s.parked, a.h) then
    -- A replay may have parked the hook while its attempt ran: it waits its turn.
    wait_behind(op, qid, a, doc)
  else
    park(op, qid, a, doc)
    s.parked = add(s.parked, a.h)
  end
  s.done = add(s.done, a.h)
end

local function settle_head(op, step, s)
  for i = FIRST_ACTION, #step do
    if s.unparked ~= '' then break end
    local a = step[i]
    if a[2] == s.head then
      if a[1] ~= 'pop' then
        a = named(a)
        if not (a.h and has(s.done, a.h)) then settle_hook(op, a, s) end
      elseif call('LPOP', P .. 'lane:' .. op) then
        s.head, s.done = s.head + 1, ''
        s.popped[#s.popped + 1] = a[3]
      end
    end
  end
end

-- released gathers the queues whose lease ends with this call.
local released = {}

-- give_back ends the claim of a queue with entries, the ready list first: such a
-- queue must not rest.
local function give_back(qid, key)
  announce(qid)
  call('HSET', key, 'st', 'r', 'tok', '', 'exp', '')
  released[#released + 1] = qid
end

local function lane_step(step)
  local op, want = step[1], step[3]
  local key, list = P .. 'state:' .. op, P .. 'lane:' .. op
  local h = call('HMGET', key, 'tok', 'head', 'd', 'pk', 'w', 'ended', 'dl')
  if h[1] ~= step[2] then return { 'lost' } end
  local head0, done0, parked0 = tonumber(h[2] or '1'), h[3] or '', h[4] or ''
  local s = { head = head0, done = done0, parked = parked0, unparked = '', popped = {} }
  local _, fault = guard(settle_head, op, step, s)
  local entries = {}
  if want > 0 and not fault then entries = read(list, want) end
  local rests = not fault and #entries == 0 and (want > 0 or step[4] == 1 and call('EXISTS', list) == 0)
  if s.done ~= done0 or s.parked ~= parked0 then
    call('HSET', key, 'head', int(s.head), 'd', s.done, 'pk', s.parked)
  end
  if rests then
    call('HSET', key, 'head', int(s.head), 'st', '', 'tok', '', 'exp', '')
  elseif s.head ~= head0 then
    call('HSET', key, 'head', int(s.head))
  end
  if fault then return { 'fault', fault } end
  if h[5] then
    for _, task in ipairs(s.popped) do notify(op, task, true) end
    if call('EXISTS', P .. 'waiters:' .. op) == 0 then call('HDEL', key, 'w') end
  end

  if rests then
    settle_down(op, s.parked, h[7], h[6] and window or idle)
    released[#released + 1] = op
  elseif step[4] == 1 then
    give_back(op, key)
  end
  local word = 'held'
  if rests or step[4] == 1 then word, entries = 'released', {} end
  if #entries == 0 and s.done == '' and s.parked == '' and s.unparked == '' then return { word } end
  return { word, int(s.head), '0', s.done, s.parked, s.unparked, entries }
end

-- end_parked settles the head of a parked queue and takes it off.
local function end_parked(qid, a, doc)
  local op, hook = op_of(qid), hook_of(qid)
  if a.v == 'bury' then
    bury(op, qid, a, doc)
    set_outcome(op, a.i, hook, 'x0:' .. a.o, window)
  elseif a.v == 'discard' then
    set_outcome(op, a.i, hook, 'k0:' .. a.o, window)
  else
    call('HDEL', P .. 'outcome:' .. op .. ':' .. a.i, hook)
    age_outcome(op, a.i, window)
  end
  call('LPOP', P .. 'parked:' .. qid)
  call('HSET', P .. 'park:' .. qid, 'att', 0)
  notify(op, a.i, a.s < tonumber(call('HGET', P .. 'state:' .. op, 'head') or '1'))
end

local function retry_later(qid, a)
  local key = P .. 'park:' .. qid
  call('HSET', key, 'st', 'p', 'att', a.n, 'due', now + a.d, 'o', a.o)
  call('HDEL', key, 'tok', 'exp')
  call('ZADD', P .. 'due', now + a.d, qid)
  set_outcome(op_of(qid), a.i, hook_of(qid), 'p' .. int(now + a.d) .. ':' .. a.o, window)
  return { 'released', '0', int(a.n), '', '', '', {} }
end

local function parked_step(step)
  local qid, want = step[1], step[3]
  local key, list = P .. 'park:' .. qid, P .. 'parked:' .. qid
  local s = call('HMGET', key, 'tok', 'att')
  if s[1] ~= step[2] then return { 'lost' } end
  local attempt = tonumber(s[2] or '0')
  for i = FIRST_ACTION, #step do
    local a = named(step[i])
    local head = call('LINDEX', list, 0)
    local seq, doc
    if head then seq, doc = split_parked(head) end
    if head and (seq or 0) == a.s then
      if a.v == 'retry' then return retry_later(qid, a) end
      end_parked(qid, a, doc or head)
      attempt = 0
    end
  end
  local entries = {}
  if want > 0 then entries = read(list, want) end
  if (want > 0 and #entries == 0) or call('EXISTS', list) == 0 then
    unpark(qid, idle, window)
    return { 'released', '0', '0', '', '', '', {} }
  end
  if step[4] == 1 then
    give_back(qid, key)
    return { 'released', '0', int(attempt), '', '', '', {} }
  end
  return { 'held', '0', int(attempt), '', '', '', entries }
end

local replies = {}
for _, step in ipairs(cjson.decode(ARGV[1])) do
  local reply, fault = guard(hook_of(step[1]) and parked_step or lane_step, step)
  replies[#replies + 1] = reply or { 'fault', fault }
end
if #released > 0 then call('ZREM', P .. 'due', unpack(released)) end
local out = { int(now), int(call('LLEN', P .. 'ready')) }
for i = 1, #replies do out[#out + 1] = replies[i] end
return out
