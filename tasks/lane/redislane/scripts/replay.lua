-- replay puts dead letters back to the tail of their hooks' queues.
--
-- KEYS[1] shard prefix   ARGV[1..] dead letter ids, oldest first
-- The last argument is the idempotency window in ms.
--
-- Returns one of "ok", "missing", "poison" per id.
--
-- Atomic, because a letter that is removed and not queued would be lost, and one
-- that is queued and not removed could be replayed twice.
local now, window = redis_now(), tonumber(ARGV[#ARGV])
local out = {}
for i = 1, #ARGV - 1 do
  local id = ARGV[i]
  local d = call('HMGET', P .. 'dead:' .. id, 'q', 'task', 'seq', 'o', 'doc', 'op')
  local hook = d[1] and hook_of(d[1])
  if not d[1] then
    out[i] = 'missing'
  elseif not hook then
    out[i] = 'poison'
  else
    local qid, op = d[1], op_of(d[1])
    local skey, pkey = P .. 'state:' .. op, P .. 'park:' .. qid
    call('RPUSH', P .. 'parked:' .. qid, d[3] .. ':' .. int(now) .. ':' .. d[5])
    call('HSETNX', skey, 'op', d[6])
    call('HSETNX', skey, 'head', 1)
    call('PERSIST', skey)
    call('SADD', P .. 'blocked', qid)
    call('HSET', skey, 'pk', add(call('HGET', skey, 'pk'), hook))
    set_outcome(op, d[2], hook, 'w0:' .. d[4], window)
    local st = call('HGET', pkey, 'st')
    if not st then call('HSET', pkey, 'att', 0, 'o', d[4]) end
    if st ~= 'c' and st ~= 'r' then
      call('ZREM', P .. 'due', qid)
      call('HSET', pkey, 'due', now)
      make_ready(qid)
    end
    call('DEL', P .. 'dead:' .. id)
    call('ZREM', P .. 'dead', id)
    out[i] = 'ok'
  end
end
return out
