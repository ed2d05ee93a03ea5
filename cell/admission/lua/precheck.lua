-- cq2_precheck: would anything but time and stock stand against a first attempt? Changes nothing.
-- KEYS  1 meta  2 stock  3 marks  4 buckets
-- ARGV  1 build  2 fence_version  3 sku_id  4 user_id  5 bucket  6 domain
local function precheck(keys, args)
  local m = redis.call('HMGET', keys[1], 'state', 'build', 'fence', 'gate:' .. args[3], 'domain:' .. args[6])
  local refused = not_mine(m[1], m[2], m[3], args[1], args[2])
  local needed, present = 2, redis.call('EXISTS', keys[2], keys[3])
  if m[5] then
    needed, present = 3, present + redis.call('EXISTS', keys[4])
  end
  if refused == OUTCOME.NOT_READY or present ~= needed or not m[4] then
    return answer(OUTCOME.NOT_READY)
  end
  if refused then
    return answer(refused)
  end
  if not m[5] or redis.call('GETBIT', keys[4], args[5]) == 0 then
    return answer(OUTCOME.MOVED)
  end
  local mark = read_mark(redis.call('HGET', keys[3], args[4]))
  if mark then
    return held_by(mark)
  end
  if num(m[4]) == GATE.FINAL_SOLD_OUT then
    return answer(OUTCOME.FINAL_SOLD_OUT)
  end
  return answer(OUTCOME.CLEAR)
end

redis.register_function { function_name = 'cq2_precheck', callback = precheck, flags = { 'no-writes' } }
