-- lib.lua is put in front of every transition. KEYS[1] is the shard's prefix,
-- "<namespace>:{<shard>}:approval:"; every key that a script touches starts with it
-- and therefore shares its slot.
--
-- A row is the hash row:<row>, where <row> is the hashes of operation and id:
-- id, op, batch, det (details), dig (digest of the row as it was opened), st
-- (status), req (the request that holds it), c, e, s (content, error and state; ""
-- for an absent error or state), pub ('1' once they were published), and of a claim
-- tok (its token), ptok (the token of the publication), and the row before it:
-- old_st, old_req, old_c, old_e, old_s.
-- The private answer of a claim is the string answer:<row>.
--
-- A value that may be absent is passed as "" or as "=" and the value.
local P = KEYS[1]
local call = redis.call

local function row_key(row) return P .. 'row:' .. row end
local function answer_key(row) return P .. 'answer:' .. row end

local function given(value)
  if string.sub(value, 1, 1) == '=' then return string.sub(value, 2) end
  return nil
end

-- write publishes content, error and state, unless something was published, or
-- there is content, or nothing to write. token names the publication. Where a row
-- has its content, nobody will ever publish the private answer.
local function write(row, content, err, state, token, ttl)
  local key = row_key(row)
  local c, e, s = given(content), given(err), given(state)
  if not (c or e or s) then return false end
  local r = call('HMGET', key, 'pub', 'c')
  if r[1] == '1' or (r[2] or '') ~= '' then
    call('DEL', answer_key(row))
    return false
  end
  if c then call('HSET', key, 'c', c) end
  if e then call('HSET', key, 'e', e) end
  if s then call('HSET', key, 's', s) end
  call('HSET', key, 'pub', '1', 'ptok', token)
  call('DEL', answer_key(row))
  call('PEXPIRE', key, ttl)
  return true
end
