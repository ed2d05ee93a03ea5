-- cq2_debit: take the units of a return before the shard is asked. Stock may go below 0: in flight
-- admissions then find out in the shard.
-- KEYS  1 meta  2 stock  3 marks  4 applied
-- ARGV  1 build  2 sku_id  3 adjustment_id  4 units  5 number of the adjustment
-- Reply { code, stock }
local function debit(keys, args)
  local refused = unfit(keys[1], args[1], keys[2], keys[3], keys[4])
  if refused then
    return { refused, 0 }
  end
  local code = CHANGE.APPLIED
  if redis.call('SISMEMBER', keys[4], args[3]) == 1 then
    code = CHANGE.ALREADY
  elseif num(args[5]) <= num(redis.call('HGET', keys[1], 'number:' .. args[2])) then
    code = CHANGE.STALE_NUMBER
  else
    redis.call('DECRBY', keys[2], args[4])
    redis.call('SADD', keys[4], args[3])
    redis.call('HSET', keys[1], 'number:' .. args[2], args[5], 'debit:' .. args[3], args[4])
  end
  return { code, num(redis.call('GET', keys[2])) }
end

-- cq2_credit: give back a debit whose return the shard refused or voided. The mirror remembers how
-- much it was: a void names no units.
-- KEYS, reply as cq2_debit.  ARGV  1 build  2 sku_id  3 adjustment_id
local function credit(keys, args)
  local refused = unfit(keys[1], args[1], keys[2], keys[3], keys[4])
  if refused then
    return { refused, 0 }
  end
  local code = give_back(keys[1], keys[2], keys[4], args[3])
  return { code, num(redis.call('GET', keys[2])) }
end

redis.register_function('cq2_debit', debit)
redis.register_function { function_name = 'cq2_credit', callback = credit, flags = { 'allow-oom' } }
