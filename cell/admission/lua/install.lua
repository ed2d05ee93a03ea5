-- cq2_switch: make a staged build the mirror.
-- KEYS  1 meta  2... every key of the build that never is empty
-- ARGV  1 build  2 its fence version  3 its count  4... fields and values of the meta
-- Reply { code, 0 }: OLDER_BUILD when the mirror is newer, NOT_READY when a staged key is missing.
local function switch(keys, args)
  local m = redis.call('HMGET', keys[1], 'build', 'build_fence', 'build_count')
  if m[1] == args[1] then
    return { CHANGE.ALREADY, 0 }
  end
  if m[1] and (num(m[2]) > num(args[2]) or (num(m[2]) == num(args[2]) and num(m[3]) > num(args[3]))) then
    return { CHANGE.OLDER_BUILD, 0 }
  end
  for i = 2, #keys do
    if redis.call('EXISTS', keys[i]) == 0 then
      return { CHANGE.NOT_READY, 0 }
    end
  end
  redis.call('DEL', keys[1])
  redis.call('HSET', keys[1], 'state', 'READY', 'build', args[1], 'build_fence', args[2], 'build_count', args[3])
  for i = 4, #args, 2 do
    redis.call('HSET', keys[1], args[i], args[i + 1])
  end
  return { CHANGE.APPLIED, 0 }
end

-- cq2_set: change fields of the meta of one build.
-- KEYS  1 meta   ARGV  1 build  2... fields and values   Reply { code, 0 }
local function set(keys, args)
  local refused = unfit(keys[1], args[1], keys[1])
  if refused then
    return { refused, 0 }
  end
  for i = 2, #args, 2 do
    redis.call('HSET', keys[1], args[i], args[i + 1])
  end
  return { CHANGE.APPLIED, 0 }
end

-- cq2_fence: raise the fence version of the meta, so that every process below it stops at once.
-- KEYS  1 meta   ARGV  1 fence_version   Reply { code, fence_version now }
local function fence(keys, args)
  local have = redis.call('HGET', keys[1], 'fence')
  if not have then
    return { CHANGE.NOT_READY, 0 }
  end
  if num(have) >= num(args[1]) then
    return { CHANGE.ALREADY, num(have) }
  end
  redis.call('HSET', keys[1], 'fence', args[1])
  return { CHANGE.APPLIED, num(args[1]) }
end

-- cq2_buckets: replace the bitmap of one domain.
-- KEYS  1 meta  2 buckets   ARGV  1 build  2 domain  3 bitmap of 512 bytes   Reply { code, 0 }
local function buckets(keys, args)
  local refused = unfit(keys[1], args[1], keys[1])
  if refused then
    return { refused, 0 }
  end
  redis.call('SET', keys[2], args[3])
  redis.call('HSET', keys[1], 'domain:' .. args[2], '1')
  return { CHANGE.APPLIED, 0 }
end

redis.register_function('cq2_switch', switch)
redis.register_function { function_name = 'cq2_set', callback = set, flags = { 'allow-oom' } }
redis.register_function { function_name = 'cq2_fence', callback = fence, flags = { 'allow-oom' } }
redis.register_function('cq2_buckets', buckets)
