-- publish writes an answer into a row that the request holds, once.
--
-- KEYS[1] shard prefix
-- ARGV[1] row   ARGV[2] request   ARGV[3] decision   ARGV[4] token of this call
-- ARGV[5] content   ARGV[6] error   ARGV[7] state (each "" or "=" and the value)
-- ARGV[8] time in ms that a published row is kept
--
-- Returns {"applied"}, {"idempotent"}, or without having written anything
-- {"unknown_row", 1}, {"not_claimed", 1} or {"already_resolved", 1}.
--
-- Atomic, because content, error and state appear together, for the claim that
-- holds the row at that moment.
local row = ARGV[1]
local r = call('HMGET', row_key(row), 'st', 'req', 'ptok')
if not r[1] then return { 'unknown_row', '1' } end
if r[1] == 'pending' then return { 'not_claimed', '1' } end
if r[1] ~= ARGV[3] or r[2] ~= ARGV[2] then return { 'already_resolved', '1' } end
if write(row, ARGV[5], ARGV[6], ARGV[7], ARGV[4], ARGV[8]) or r[3] == ARGV[4] then return { 'applied' } end
return { 'idempotent' }
