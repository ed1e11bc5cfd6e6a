-- lib.lua is put in front of every transition. KEYS[1] is the shard's prefix,
-- "<namespace>:{<shard>}:deferred:"; every key that a script touches starts with it
-- and therefore shares its slot.
--
-- A row is the hash row:<row>, where <row> is the 22-character hash of its id:
-- id, dig (digest of the placeholder), doc (the placeholder), rec (the controls
-- recorded with it), at (opened, ms), and
-- once it is final: st = 'f', res (the result), den ('1' when a denial stands in
-- for it), fin (settled, ms), tok (the publication that stands).
local P = KEYS[1]
local call = redis.call

local function int(n) return string.format('%.0f', n) end

local function redis_now()
  local t = call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function row_key(row) return P .. 'row:' .. row end
local function listeners_key(row) return P .. 'listeners:' .. row end

-- answer puts a word in front of how a row stands: {word, state, placeholder,
-- result, denied, opened, settled, recorded}.
local function answer(word, row)
  local r = call('HMGET', row_key(row), 'st', 'doc', 'res', 'den', 'at', 'fin', 'rec')
  return { word, r[1], r[2], r[3] or '', r[4] or '0', r[5], r[6] or '0', r[7] }
end

-- tell wakes whoever listens. What is in an inbox is a hint that expires; the row
-- is the truth.
local function tell(row)
  local listeners = listeners_key(row)
  local inboxes = call('ZRANGE', listeners, 0, -1)
  if #inboxes == 0 then return end
  local id = call('HGET', row_key(row), 'id')
  for i = 1, #inboxes do
    local inbox = P .. 'inbox:' .. inboxes[i]
    call('RPUSH', inbox, id)
    call('PEXPIRE', inbox, 60000)
  end
  call('DEL', listeners)
end
