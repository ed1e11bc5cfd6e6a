-- restore puts rows back as they were before a claim that still holds them.
--
-- KEYS[1] shard prefix
-- ARGV[1] request   ARGV[2] token of this call   ARGV[3] time in ms that an open row is kept
-- ARGV[4..] rows
--
-- Returns "1" or "0" for each row: whether it is as it was before the claim.
--
-- Atomic, because between the look at who holds a row and its restoration another
-- request could claim it, or its answer be published.
local request, token = ARGV[1], ARGV[2]
local out = {}
for i = 4, #ARGV do
  local row = ARGV[i]
  local key = row_key(row)
  local r = call('HMGET', key, 'req', 'tok', 'ptok', 'pub', 'rtok', 'old_st', 'old_req', 'old_c', 'old_e', 'old_s')
  if r[6] and r[1] == request and (r[4] ~= '1' or r[2] == r[3]) then
    call('HSET', key, 'st', r[6], 'req', r[7], 'c', r[8], 'e', r[9], 's', r[10], 'pub', '0', 'rtok', token)
    call('HDEL', key, 'old_st', 'old_req', 'old_c', 'old_e', 'old_s', 'tok', 'ptok')
    call('DEL', answer_key(row))
    call('PEXPIRE', key, ARGV[3])
    out[#out + 1] = '1'
  else
    -- The same call again, because its reply was lost, finds its own mark.
    out[#out + 1] = r[5] == token and '1' or '0'
  end
end
return out
