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
    local qid, op, seq = d[1], op_of(d[1]), tonumber(d[3])
    local skey, pkey = P .. 'state:' .. op, P .. 'park:' .. qid
    -- A letter that outlived its operation keeps its number, and new events get
    -- later ones, so that no two deliveries of a queue share one.
    local head = tonumber(call('HGET', skey, 'head') or '1')
    if seq >= head and call('EXISTS', P .. 'lane:' .. op) == 0 then head = seq + 1 end
    call('HSETNX', skey, 'op', d[6])
    call('HSET', skey, 'head', int(head), 'pk', add(call('HGET', skey, 'pk'), hook))
    call('PERSIST', skey)
    call('SADD', P .. 'blocked', qid)
    set_outcome(op, d[2], hook, 'w0:' .. d[4], window)
    local st = call('HGET', pkey, 'st')
    local wake = st ~= 'c' and st ~= 'r'
    if not st then call('HSET', pkey, 'st', 'p', 'att', 0, 'o', d[4]) end
    if wake then
      call('HSET', pkey, 'due', int(now))
      call('ZADD', P .. 'due', now, qid)
    end
    call('RPUSH', P .. 'parked:' .. qid, int(seq) .. ':' .. int(now) .. ':' .. d[5])
    call('DEL', P .. 'dead:' .. id)
    call('ZREM', P .. 'dead', id)
    if wake then
      make_ready(qid)
      call('ZREM', P .. 'due', qid)
    end
    out[i] = 'ok'
  end
end
return out
