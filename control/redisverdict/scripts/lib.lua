-- lib.lua is put in front of every transition. KEYS[1] is the shard's prefix,
-- "<namespace>:{<shard>}:ctl:"; every key that a script touches starts with it
-- and therefore shares its slot. Which questions a call touches is only known
-- inside, so scripts build those keys themselves.
--
-- A question stands as "<op>:<id>", where <op> is the 22-character hash of its
-- operation. Until it is settled it is the hash q:<question>, afterwards the text
-- v:<question>, never both.
local P = KEYS[1]
local call = redis.call

local function redis_now()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- outlast lets a key live for ttl ms at least.
local function outlast(key, ttl)
  if call('PTTL', key) < ttl then call('PEXPIRE', key, ttl) end
end

-- push adds to a list that lives for ttl ms at least, and returns its length. A
-- new list has no end yet, which needs no question.
local function push(how, key, value, ttl)
  local n = call(how, key, value)
  if n == 1 then call('PEXPIRE', key, ttl) else outlast(key, ttl) end
  return n
end

-- offer puts a question where workers find it. A wake-up only says "look"; a lost
-- or surplus one is harmless, so a long list needs no more of them.
local function offer(how, qid, ttl)
  if push(how, P .. 'asks', qid, ttl) <= 32 then push('RPUSH', P .. 'wake', '1', ttl) end
end

-- finish writes the verdict that stands from now on and tells the inboxes, of
-- which the one of the writer needs no notice. A question without a verdict to
-- write was written by hand, and goes.
local function finish(qid, q, verdict, by, now, keep, own)
  call('DEL', P .. 'q:' .. qid)
  call('ZREM', P .. 'held', qid)
  if not verdict then return end
  call('SET', P .. 'v:' .. qid, now .. ' ' .. by .. ' ' .. (q.digest or '') .. '\n' .. verdict, 'PX', keep)
  for inbox in string.gmatch(q.inboxes or '', '%S+') do
    if inbox ~= own then
      push('RPUSH', P .. 'inbox:' .. inbox, qid .. '\n' .. now .. '\n' .. (q.digest or '') .. '\n' .. verdict, 60000)
    end
  end
end

-- settled returns digest, writer, time and text of the verdict that stands.
local function settled(qid)
  local v = call('GET', P .. 'v:' .. qid)
  if not v then return nil end
  local at, by, digest, verdict = string.match(v, '^(%d+) (%S*) (%S*)\n(.*)$')
  return digest or '', by, at or '0', verdict or ''
end

-- open returns a question that has no verdict, or nothing.
local function open(qid)
  local h = call('HMGET', P .. 'q:' .. qid, 'dl', 'dig', 'in', 'fb', 'st', 'tok', 'n')
  local deadline = tonumber(h[1] or '')
  if not deadline then return nil end
  return {
    deadline = deadline, digest = h[2], inboxes = h[3], fallback = h[4], state = h[5], token = h[6], claims = tonumber(h[7] or '0'),
  }
end

-- guard runs one question's part of a script. A key of the wrong type breaks that
-- question only, and the others of the call go on.
local function guard(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  return nil
end
