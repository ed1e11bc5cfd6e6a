-- progress applies steps to queues that a worker holds: settle the head's
-- hooks, move the head, hand over the next entries, or give the queue back.
--
-- KEYS[1] shard prefix
-- ARGV[1] JSON array of steps: {q queue id, t token, n entries wanted, r 1 to
--         release, a actions}; an action is {v verb, s sequence, i task id, h hook
--         key, d delay in ms, n attempt, o outcome JSON, x dead letter id}
-- ARGV[2] idempotency window in ms   ARGV[3] idle time of an operation in ms
--
-- Returns {now, ready queues, reply, ...}, one reply per step: {"lost"}, or
-- {"held" or "released", head sequence, attempt, settled, parked, unparked,
-- {entry, ...}}.
--
-- Atomic per step, because a head that is settled, parked and popped in pieces
-- would be delivered twice or skipped after a crash. Each action names the
-- sequence of the head that it means and is skipped when that is gone, so that a
-- step whose reply was lost can be sent again.
local now = redis_now()
local window, idle = tonumber(ARGV[2]), tonumber(ARGV[3])

local function bury(op, qid, a, doc)
  local key = P .. 'dead:' .. a.x
  call('HSET', key, 'q', qid, 'task', a.i, 'seq', int(a.s), 'o', a.o, 'at', int(now), 'doc', doc,
    'op', call('HGET', P .. 'state:' .. op, 'op') or '')
  call('ZADD', P .. 'dead', now, a.x)
end

local function park_behind(qid, a, doc)
  call('RPUSH', P .. 'parked:' .. qid, int(a.s) .. ':' .. int(now) .. ':' .. doc)
end

local function lane_step(step, reply)
  local op = step.q
  local key, list = P .. 'state:' .. op, P .. 'lane:' .. op
  local s = call('HMGET', key, 'tok', 'head', 'd', 'pk', 'w')
  if s[1] ~= step.t then return { 'lost' } end
  local head, done, parked = tonumber(s[2] or '1'), s[3] or '', s[4] or ''
  local head0, done0, parked0 = head, done, parked
  local unparked = ''
  for _, a in ipairs(step.a) do
    if unparked ~= '' then break end
    if a.s == head and not (a.h and has(done, a.h)) then
      local qid = a.h and (op .. ':' .. a.h)
      if a.v == 'delivered' then
        done = add(done, a.h)
      elseif a.v == 'park' then
        park_behind(qid, a, call('LINDEX', list, 0))
        if has(parked, a.h) then
          -- A replay parked the hook while this attempt ran: it waits its turn.
          set_outcome(op, a.i, a.h, 'w0:' .. a.o, window)
        else
          call('HSET', P .. 'park:' .. qid, 'st', 'p', 'att', a.n, 'due', now + a.d, 'o', a.o)
          call('ZADD', P .. 'due', now + a.d, qid)
          call('SADD', P .. 'blocked', qid)
          set_outcome(op, a.i, a.h, 'p' .. int(now + a.d) .. ':' .. a.o, window)
        end
        parked, done = add(parked, a.h), add(done, a.h)
      elseif a.v == 'behind' then
        if has(parked, a.h) then
          park_behind(qid, a, call('LINDEX', list, 0))
          set_outcome(op, a.i, a.h, 'w0:' .. a.o, window)
          done = add(done, a.h)
        else
          unparked = add(unparked, a.h)
        end
      elseif a.v == 'bury' then
        bury(op, qid or op, a, call('LINDEX', list, 0))
        if a.h then
          set_outcome(op, a.i, a.h, 'x0:' .. a.o, window)
          done = add(done, a.h)
        end
      elseif a.v == 'discard' then
        set_outcome(op, a.i, a.h, 'k0:' .. a.o, window)
        done = add(done, a.h)
      elseif a.v == 'pop' then
        call('LPOP', list)
        head, done = head + 1, ''
        if s[5] then notify(op, a.i, true) end
      end
    end
  end
  if head ~= head0 or done ~= done0 or parked ~= parked0 then
    call('HSET', key, 'head', int(head), 'd', done, 'pk', parked)
  end
  if s[5] and call('EXISTS', P .. 'waiters:' .. op) == 0 then call('HDEL', key, 'w') end

  local entries, want = {}, tonumber(step.n)
  if want > 0 then entries = read(list, want) end
  if step.r == 1 or (want > 0 and #entries == 0) then
    call('HDEL', key, 'tok', 'exp', 'st')
    call('ZREM', P .. 'due', op)
    if call('EXISTS', list) == 1 then make_ready(op) else rest(op, idle, window) end
    return { 'released', int(head), '0', done, parked, unparked, {} }
  end
  return { 'held', int(head), '0', done, parked, unparked, entries }
end

local function unpark(op, qid, hook)
  call('DEL', P .. 'park:' .. qid)
  call('ZREM', P .. 'due', qid)
  call('SREM', P .. 'blocked', qid)
  local key = P .. 'state:' .. op
  call('HSET', key, 'pk', remove(call('HGET', key, 'pk'), hook))
  rest(op, idle, window)
end

local function parked_step(step)
  local qid = step.q
  local op, hook = op_of(qid), hook_of(qid)
  local key, list = P .. 'park:' .. qid, P .. 'parked:' .. qid
  local s = call('HMGET', key, 'tok', 'att')
  if s[1] ~= step.t then return { 'lost' } end
  local attempt = tonumber(s[2] or '0')
  local lane_head = tonumber(call('HGET', P .. 'state:' .. op, 'head') or '1')
  for _, a in ipairs(step.a) do
    local head = call('LINDEX', list, 0)
    local seq, doc = string.match(head or '', '^(%d+):%d+:(.*)$')
    if head and (tonumber(seq or '0') == a.s) then
      if a.v == 'retry' then
        call('HSET', key, 'st', 'p', 'att', a.n, 'due', now + a.d, 'o', a.o)
        call('HDEL', key, 'tok', 'exp')
        call('ZADD', P .. 'due', now + a.d, qid)
        set_outcome(op, a.i, hook, 'p' .. int(now + a.d) .. ':' .. a.o, window)
        return { 'released', '0', int(a.n), '', '', '', {} }
      end
      call('LPOP', list)
      attempt = 0
      call('HSET', key, 'att', 0)
      if a.v == 'delivered' then
        call('HDEL', P .. 'outcome:' .. op .. ':' .. a.i, hook)
      elseif a.v == 'bury' then
        bury(op, qid, a, doc or head)
        set_outcome(op, a.i, hook, 'x0:' .. a.o, window)
      elseif a.v == 'discard' then
        set_outcome(op, a.i, hook, 'k0:' .. a.o, window)
      end
      notify(op, a.i, a.s < lane_head)
    end
  end
  local entries, want = {}, tonumber(step.n)
  if want > 0 then entries = read(list, want) end
  if (want > 0 and #entries == 0) or call('EXISTS', list) == 0 then
    unpark(op, qid, hook)
    return { 'released', '0', '0', '', '', '', {} }
  end
  if step.r == 1 then
    call('HDEL', key, 'tok', 'exp', 'st')
    call('ZREM', P .. 'due', qid)
    make_ready(qid)
    return { 'released', '0', int(attempt), '', '', '', {} }
  end
  return { 'held', '0', int(attempt), '', '', '', entries }
end

local replies = {}
for _, step in ipairs(cjson.decode(ARGV[1])) do
  if hook_of(step.q) then
    replies[#replies + 1] = parked_step(step)
  else
    replies[#replies + 1] = lane_step(step)
  end
end
local out = { int(now), int(call('LLEN', P .. 'ready')) }
for i = 1, #replies do out[#out + 1] = replies[i] end
return out
