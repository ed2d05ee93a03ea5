-- cq2_facts: one consistent read of one SKU of a mirror. Changes nothing.
-- KEYS  1 meta  2 stock  3 marks  4 applied  5 outstanding  6 stream  7 stats   ARGV  1 sku_id
-- Reply { state, build, fence_version, run, shard, keys missing, stock, outstanding,
--   outstanding_units, oldest admitted_at_ms or 0, stream length, admitted, refused, now_ms, gate,
--   bound, base, last number }
local function facts(keys, args)
  local sku = args[1]
  local m = redis.call('HMGET', keys[1], 'state', 'build', 'fence', 'run', 'shard', 'gate:' .. sku,
    'bound:' .. sku, 'base:' .. sku, 'number:' .. sku)
  local s = redis.call('HMGET', keys[7], 'admitted', 'refused', 'outstanding_units')
  local oldest = redis.call('ZRANGE', keys[5], 0, 0, 'WITHSCORES')
  return { m[1] or '', m[2] or '', num(m[3]), m[4] or '', m[5] or '',
    3 - redis.call('EXISTS', keys[2], keys[3], keys[4]), num(redis.call('GET', keys[2])),
    redis.call('ZCARD', keys[5]), num(s[3]), num(oldest[2]), redis.call('XLEN', keys[6]), num(s[1]),
    num(s[2]), now_ms(), num(m[6]), num(m[7]), num(m[8]), num(m[9]) }
end

-- cq2_record: what the mirror holds of one request. Changes nothing.
-- KEYS  1 meta  2 record  3 marks   ARGV  1 build  2 fence_version  3 sku_id  4 user_id  5 request_id
-- Reply as cq2_admit: REPLAYED with the record (or, the record being lost, the user's own mark);
-- CLEAR: no such request here; NOT_READY, FENCED: nobody knows. stream_id as in the record.
local function record(keys, args)
  local m = redis.call('HMGET', keys[1], 'state', 'build', 'fence')
  local refused = not_mine(m[1], m[2], m[3], args[1], args[2])
  if refused or redis.call('EXISTS', keys[3]) == 0 then
    return answer(refused or OUTCOME.NOT_READY)
  end
  local r = redis.call('HMGET', keys[2], 'state', 'reason', 'reservation', 'order', 'expires_at_ms',
    'quantity', 'admitted_at_ms', 'stream_id')
  if r[1] then
    return answer(OUTCOME.REPLAYED, { state = num(r[1]), reason = num(r[2]), reservation = r[3] or '',
      order = r[4] or '', expires_at_ms = num(r[5]), quantity = num(r[6]), admitted_at_ms = num(r[7]),
      stream_id = r[8] or '', request = args[5], sku = args[3] })
  end
  local mark = read_mark(redis.call('HGET', keys[3], args[4]))
  if mark and mark.request == args[5] and mark.sku == args[3] then
    return answer(OUTCOME.REPLAYED, mark)
  end
  return answer(OUTCOME.CLEAR)
end

redis.register_function { function_name = 'cq2_facts', callback = facts, flags = { 'no-writes' } }
redis.register_function { function_name = 'cq2_record', callback = record, flags = { 'no-writes' } }
