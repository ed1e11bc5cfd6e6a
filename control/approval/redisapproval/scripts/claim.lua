-- claim records one decision on all rows of a batch, or on none.
--
-- KEYS[1] shard prefix
-- ARGV[1] request   ARGV[2] decision   ARGV[3] token of this call
-- ARGV[4] "hold", or "receipt" to publish at once
-- ARGV[5] time in ms that a claimed row is kept   ARGV[6] the same of a published one
-- ARGV[7..] five per row: row, private answer, content, error, state (the last
--           three: "" or "=" and the value, for receipts)
--
-- Returns {"applied"}, {"idempotent"}, or without having written anything
-- {"duplicate_row", n}, {"unknown_row", n}, {"already_resolved", n} or
-- {"partial_claim", n}, where n counts rows from 1.
--
-- Atomic, because all rows of a batch are decided together: one that is refused
-- must leave the others as they were, and the row before the claim must be kept
-- with the claim.
local request, decision, token, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == 'receipt'
local n, seen = (#ARGV - 6) / 5, {}
local function arg(i, offset) return ARGV[7 + (i - 1) * 5 + offset] end
local function refuse(code, i) return { code, string.format('%.0f', i) } end

for i = 1, n do
  if seen[arg(i, 0)] then return refuse('duplicate_row', i) end
  seen[arg(i, 0)] = true
end
local rows = {}
for i = 1, n do
  rows[i] = call('HMGET', row_key(arg(i, 0)), 'st', 'req', 'tok', 'ptok', 'c', 'e', 's')
  if not rows[i][1] then return refuse('unknown_row', i) end
end
local held, free = 0, nil
for i = 1, n do
  local status, by = rows[i][1], rows[i][2]
  if status == 'pending' then
    free = free or i
  elseif status == decision and by == request then
    held = held + 1
  else
    return refuse('already_resolved', i)
  end
end
if held > 0 and held < n then return refuse('partial_claim', free) end

local changed = false
for i = 1, n do
  local row, r = arg(i, 0), rows[i]
  local key = row_key(row)
  if held == 0 then
    call('HSET', key, 'old_st', r[1], 'old_req', r[2] or '', 'old_c', r[5], 'old_e', r[6], 'old_s', r[7])
    call('HSET', key, 'st', decision, 'req', request, 'tok', token)
    call('PEXPIRE', key, ARGV[5])
    if not receipt and arg(i, 1) ~= '' then call('SET', answer_key(row), arg(i, 1), 'PX', ARGV[5]) end
    changed = true
  elseif r[3] == token or r[4] == token then
    -- This very call, repeated because its reply was lost.
    changed = true
  end
  if receipt and write(row, arg(i, 2), arg(i, 3), arg(i, 4), token, ARGV[6]) then changed = true end
end
return { changed and 'applied' or 'idempotent' }
