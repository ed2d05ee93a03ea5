-- cq2_acked: the log has the message: drop the stream entry, show QUEUED.
-- KEYS  1 stream  2 record   ARGV  1 stream_id  2 reservation_id   Reply { code, entries dropped }
local function acked(keys, args)
  local dropped = redis.call('XDEL', keys[1], args[1])
  local r = redis.call('HMGET', keys[2], 'state', 'reservation')
  if r[2] == args[2] and num(r[1]) == STATE.ADMITTED then
    redis.call('HSET', keys[2], 'state', int(STATE.QUEUED))
  end
  return { CHANGE.APPLIED, dropped }
end

redis.register_function { function_name = 'cq2_acked', callback = acked, flags = { 'allow-oom' } }
