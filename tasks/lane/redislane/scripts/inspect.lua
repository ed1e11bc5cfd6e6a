-- inspect reads one lane for operators.
--
-- KEYS[1] shard prefix   ARGV[1] operation hash
--
-- Returns {} for an unknown operation, else {operation id, state, waiting,
-- delayed, next sequence, {hook, state, waiting, attempt, due, outcome}, ...}.
--
-- Atomic, so that the counts belong to one moment.
local op = ARGV[1]
local s = call('HMGET', P .. 'state:' .. op, 'op', 'st', 'head', 'pk')
if not s[1] then return {} end
local waiting = call('LLEN', P .. 'lane:' .. op)
local out = { s[1], s[2] or '', int(waiting), int(call('HLEN', P .. 'delayed:' .. op)), int(tonumber(s[3] or '1') + waiting) }
for hook in string.gmatch(s[4] or '', '%S+') do
  local qid = op .. ':' .. hook
  local p = call('HMGET', P .. 'park:' .. qid, 'st', 'att', 'due', 'o')
  out[#out + 1] = { hook, p[1] or '', int(call('LLEN', P .. 'parked:' .. qid)), p[2] or '0', p[3] or '0', p[4] or '{}' }
end
return out
