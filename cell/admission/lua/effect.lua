-- cq2_effect: apply one effect of the shard's outbox.
-- KEYS  1 meta  2 stock  3 marks  4 applied  5 record  6 outstanding  7 pending  8 stats
-- ARGV  1 build of the mirror as the shard has it  2 sku_id  3 user_id  4 request_id or ''
--       5 reservation_id or ''  6 effect_id ("credit:ID": what was debited under ID goes back, as
--         by cq2_credit, whatever stock_delta says)  7 stock_delta  8 stock_version
--       9 build of the admission given back, or ''  10 settle 0|1  11 mark action
--       12 winner_reservation_id  13 winner_request_id  14 winner_sku_id  15 state, 0: none
--       16 reason  17 order_id or ''  18 expires_at_ms, 0: no change  19 aggregate_version
-- Reply { code, stock }: the code tells what became of stock_delta; the rest is done whenever the
-- build fits.

-- Stock: additive, once per id, in any order.
local function effect_stock(keys, args, base)
  local credited = string.match(args[6], '^credit:(.*)$')
  if credited then
    return give_back(keys[1], keys[2], keys[4], credited)
  end
  if tonumber(args[7]) == 0 then
    return CHANGE.APPLIED
  end
  if redis.call('SISMEMBER', keys[4], args[6]) == 1 then
    return CHANGE.ALREADY
  end
  if args[9] ~= '' and args[9] ~= args[1] then
    return CHANGE.OTHER_ADMISSION
  end
  if args[9] == '' and num(args[8]) <= num(base) then
    return CHANGE.BELOW_BASE
  end
  redis.call('INCRBY', keys[2], args[7])
  redis.call('SADD', keys[4], args[6])
  return CHANGE.APPLIED
end

-- Outstanding: the admission has its outcome.
local function effect_settle(keys, reservation)
  local pending = redis.call('HGET', keys[7], reservation)
  if pending then
    redis.call('HDEL', keys[7], reservation)
    redis.call('HINCRBY', keys[8], 'outstanding_units', '-' .. string.match(pending, '^%d+'))
  end
  redis.call('ZREM', keys[6], reservation)
end

-- Record: the aggregate's version decides, a lower or equal one is ignored. True: written.
local function effect_record(keys, args, keep_until_ms)
  local r = redis.call('HMGET', keys[5], 'reservation', 'version')
  if r[1] and (r[1] ~= args[5] or num(args[19]) <= num(r[2])) then
    return false
  end
  redis.call('HSET', keys[5], 'state', args[15], 'reason', args[16], 'reservation', args[5], 'version', args[19])
  if args[17] ~= '' then
    redis.call('HSET', keys[5], 'order', args[17])
  end
  if num(args[18]) > 0 then
    redis.call('HSET', keys[5], 'expires_at_ms', args[18])
  end
  if num(keep_until_ms) > 0 then
    redis.call('PEXPIREAT', keys[5], keep_until_ms)
  end
  return true
end

-- The state that a mark shows of the winner who is the reason of a rejection.
local function winner_state(reason)
  if reason == REASON.ALREADY_PURCHASED then
    return STATE.PAID
  elseif reason == REASON.ORDER_CLOSED then
    return STATE.CLOSED
  end
  return STATE.PENDING_PAYMENT
end

-- Mark: dropped, given to the winner, or following the state of its own reservation.
local function effect_mark(keys, args, written)
  local sku, user, request, reservation = args[2], args[3], args[4], args[5]
  local action, state = num(args[11]), num(args[15])
  local mark = read_mark(redis.call('HGET', keys[3], user))
  if action == MARK.DROP_IF_MINE then
    if mark and mark.reservation == reservation then
      redis.call('HDEL', keys[3], user)
    end
  elseif action == MARK.SET_WINNER then
    if not mark or mark.reservation ~= args[12] then
      redis.call('HSET', keys[3], user, mark_text(winner_state(num(args[16])), args[14], args[13], args[12], 0))
    end
  elseif written and (state == STATE.PENDING_PAYMENT or state == STATE.PAID
      or state == STATE.CLOSED or state == STATE.MANUAL_REVIEW) then
    if not mark then
      redis.call('HSET', keys[3], user, mark_text(state, sku, request, reservation, 0))
    elseif mark.reservation == reservation then
      redis.call('HSET', keys[3], user, mark_text(state, mark.sku, mark.request, reservation, mark.quantity))
    end
  end
end

local function effect(keys, args)
  local refused = unfit(keys[1], args[1], keys[2], keys[3], keys[4])
  if refused then
    return { refused, 0 }
  end
  local m = redis.call('HMGET', keys[1], 'base:' .. args[2], 'keep_until_ms')
  local code = effect_stock(keys, args, m[1])
  if args[10] == '1' and args[5] ~= '' then
    effect_settle(keys, args[5])
  end
  local written = false
  if num(args[15]) ~= 0 and args[4] ~= '' then
    written = effect_record(keys, args, m[2])
  end
  if args[3] ~= '' then
    effect_mark(keys, args, written)
  end
  return { code, num(redis.call('GET', keys[2])) }
end

redis.register_function { function_name = 'cq2_effect', callback = effect, flags = { 'allow-oom' } }
