-- cq2_acked: the log has these messages: drop their stream entries, show QUEUED.
-- KEYS  1 stream  2... records   ARGV  1, 2 stream_id and reservation_id of the first record, 3, 4 of the
-- second, and so on; at most 64 records   Reply { code, entries dropped }
local function acked(keys, args)
  local call, entries = redis.call, {}
  for i = 1, #args, 2 do
    entries[#entries + 1] = args[i]
  end
  local dropped = call('XDEL', keys[1], unpack(entries))
  for i = 2, #keys do
    local r = call('HMGET', keys[i], 'state', 'reservation')
    if r[2] == args[2 * i - 2] and num(r[1]) == STATE.ADMITTED then
      call('HSET', keys[i], 'state', int(STATE.QUEUED))
    end
  end
  return { CHANGE.APPLIED, dropped }
end

redis.register_function { function_name = 'cq2_acked', callback = acked, flags = { 'allow-oom' } }
