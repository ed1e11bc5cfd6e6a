-- lib.lua is put in front of every transition. KEYS[1] is the shard's prefix,
-- "<namespace>:{<shard>}:ctl:"; every key that a script touches starts with it
-- and therefore shares its slot. Which questions a call touches is only known
-- inside, so scripts build those keys themselves.
--
-- A question stands as "<op>:<id>", where <op> is the 22-character hash of its
-- operation. Its hash q:<question> holds, until it is settled, dl (the deadline
-- in ms) and what was asked, and afterwards v, the verdict that stands, at, when
-- it was written, and by, who wrote it.
local P = KEYS[1]
local call = redis.call

local function int(n) return string.format('%.0f', n) end

local function redis_now()
  local t = call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- outlast lets a key live for ttl ms at least.
local function outlast(key, ttl)
  if call('PTTL', key) < ttl then call('PEXPIRE', key, int(ttl)) end
end

-- offer puts a question where workers find it. A wake-up only says "look"; a lost
-- or surplus one is harmless, so a long list needs no more of them.
local function offer(push, qid, ttl)
  local n = call(push, P .. 'asks', qid)
  outlast(P .. 'asks', ttl)
  if n <= 32 then
    call('RPUSH', P .. 'wake', '1')
    outlast(P .. 'wake', ttl)
  end
end

-- finish writes the verdict that stands from now on and tells the inboxes, of
-- which the one of the writer needs no notice. A question without a verdict to
-- write was written by hand, and goes.
local function finish(qid, verdict, by, now, keep, inboxes, own)
  local key = P .. 'q:' .. qid
  call('ZREM', P .. 'held', qid)
  if not verdict then
    call('DEL', key)
    return
  end
  call('HSET', key, 'v', verdict, 'at', int(now), 'by', by)
  call('HDEL', key, 'op', 'ev', 'rd', 'tr', 'fb', 'in', 'st', 'tok', 'n')
  call('PEXPIRE', key, keep)
  for inbox in string.gmatch(inboxes or '', '%S+') do
    if inbox ~= own then
      local to = P .. 'inbox:' .. inbox
      call('RPUSH', to, qid .. '\n' .. int(now) .. '\n' .. verdict)
      call('PEXPIRE', to, 60000)
    end
  end
end

-- join lets an inbox hear of the verdict.
local function join(qid, inboxes, inbox)
  if inbox == '' then return end
  inboxes = inboxes or ''
  if string.find(' ' .. inboxes, ' ' .. inbox .. ' ', 1, true) then return end
  call('HSET', P .. 'q:' .. qid, 'in', inboxes .. inbox .. ' ')
end

-- standing answers how a question stands: {"settled", type, at, verdict} or
-- {"asked", type, ms until the deadline}; nothing when it is not known. After
-- the deadline the fallback stands, whether somebody looked in time or not.
local function standing(qid, inbox, now, keep)
  local h = call('HMGET', P .. 'q:' .. qid, 'type', 'at', 'v', 'dl', 'fb', 'in')
  if h[3] then return { 'settled', h[1] or '', h[2] or '0', h[3] } end
  if not h[4] then return nil end
  local left = tonumber(h[4]) - now
  if left <= 0 then
    finish(qid, h[5], 'deadline', now, keep, h[6], '')
    if not h[5] then return nil end
    return { 'settled', h[1] or '', int(now), h[5] }
  end
  join(qid, h[6], inbox)
  return { 'asked', h[1] or '', int(left) }
end

-- guard runs one question's part of a script. A key of the wrong type breaks that
-- question only, and the others of the call go on.
local function guard(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  return nil
end
