#!lua name=cellquota_v1
-- cellquota_v1: everything that changes or judges a mirror, one call, one atomic step. This file is
-- the head of the library; library.go appends the other files of this folder, in its order.
--
-- CONTRACT
--   Keys      Every key comes in KEYS, all under the one hash tag of the mirror's scope (keys.go);
--             none is built here. Keys of a build carry the build, the meta key does not.
--   Numbers   Whole, below 2^53; times are Unix milliseconds by Redis TIME; a name ends in _ms or
--             names its unit. Text is never made from a number by .. or tostring (1e14 and above
--             would lose digits): int() does it.
--   Replies   Fixed arrays; first a code of one of the lists below, which the Go side has too (a
--             test compares them).
--   Missing   A missing meta, stock, marks, applied or bitmap key means that the mirror was damaged:
--             NOT_READY, never "sold out".
--   Cost      Every function makes a fixed number of O(1) or O(log N) steps, cq1_switch one per key
--             given.
--   Retries   Every function may be called again with the same arguments; the second call changes
--             nothing and answers alike.
--
-- INVARIANTS
--   The nonce, the units, the mark, the record, the outstanding entry and the stream entry of an
--   admission appear together or not at all. A stock effect counts once per effect id. Nothing here
--   is evidence of a sale.

-- outcomes of cq1_admit and cq1_precheck
local OUTCOME = {
  ACCEPTED = 1,
  REPLAYED = 2,
  CONFLICT = 3,
  ALREADY_RESERVED = 4,
  ALREADY_PURCHASED = 5,
  ORDER_CLOSED = 6,
  TEMP_SOLD_OUT = 7,
  FINAL_SOLD_OUT = 8,
  QUEUE_FULL = 9,
  THROTTLED = 10,
  NOT_STARTED = 11,
  ENDED = 12,
  PAUSED = 13,
  NOT_READY = 14,
  FENCED = 15,
  MOVED = 16,
  PERMIT_INVALID = 17,
  CLEAR = 18,
}

-- outcomes of the functions that change a mirror
local CHANGE = {
  APPLIED = 1,
  ALREADY = 2,
  OTHER_BUILD = 3,
  BELOW_BASE = 4,
  OTHER_ADMISSION = 5,
  NOT_READY = 6,
  STALE_NUMBER = 7,
  NOT_HELD = 8,
  OLDER_BUILD = 9,
}

-- gate states that the script itself refuses by; the others only show in the count
local GATE = {
  OPEN = 1,
  THROTTLED = 2,
  FINAL_SOLD_OUT = 5,
  PAUSED = 6,
}

-- request states (cellquota.v1.RequestState) and reasons (cellquota.v1.Reason) used here
local STATE = {
  ADMITTED = 1,
  QUEUED = 2,
  PENDING_PAYMENT = 3,
  PAID = 4,
  CLOSED = 5,
  MANUAL_REVIEW = 8,
}
local REASON = {
  ALREADY_PURCHASED = 2,
  ORDER_CLOSED = 3,
  MOVED = 10,
}

-- mark actions (cellquota.events.v1.MarkAction)
local MARK = {
  DROP_IF_MINE = 1,
  SET_WINNER = 2,
}

-- A nonce outlives its permit by this much, so that a Redis clock set back does not revive it.
local NONCE_MARGIN_MS = 60000

local function int(n)
  return string.format('%.0f', n)
end

local function num(text)
  return tonumber(text or false) or 0
end

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- A mark is STATE|SKU|REQUEST|RESERVATION|QUANTITY; no part contains the bar. Quantity 0: unknown.
local function read_mark(text)
  if not text then
    return nil
  end
  local state, sku, request, reservation, quantity =
    string.match(text, '^(%d+)|([^|]*)|([^|]*)|([^|]*)|(%d+)$')
  if not state then
    return nil
  end
  return { state = tonumber(state), sku = sku, request = request,
           reservation = reservation, quantity = tonumber(quantity) }
end

local function mark_text(state, sku, request, reservation, quantity)
  return table.concat({ int(state), sku, request, reservation, int(quantity) }, '|')
end

-- The answer of cq1_admit and cq1_precheck:
-- { code, state, reason, reservation_id, order_id, expires_at_ms, admitted_at_ms, stock_left,
--   request_id, sku_id, opens_in_ms, quantity, stream_id }
local function answer(code, a)
  a = a or {}
  return { code, a.state or 0, a.reason or 0, a.reservation or '', a.order or '', a.expires_at_ms or 0,
           a.admitted_at_ms or 0, a.stock_left or 0, a.request or '', a.sku or '', a.opens_in_ms or 0,
           a.quantity or 0, a.stream_id or '' }
end

-- What stands against a user who holds another request's place.
local function held_by(mark)
  local code = OUTCOME.ALREADY_RESERVED
  if mark.state == STATE.PAID then
    code = OUTCOME.ALREADY_PURCHASED
  elseif mark.state == STATE.CLOSED then
    code = OUTCOME.ORDER_CLOSED
  end
  return answer(code, mark)
end

-- meta and build, then the fence: nil when both hold, else the code that refuses.
local function not_mine(state, build, fence, want_build, want_fence)
  if state ~= 'READY' or build ~= want_build then
    return OUTCOME.NOT_READY
  end
  if num(fence) > num(want_fence) then
    return OUTCOME.FENCED
  end
  if num(fence) < num(want_fence) then
    return OUTCOME.NOT_READY
  end
  return nil
end

-- The keys that a mirror of this build always has: nil when all is well, else the code that refuses.
local function unfit(meta_key, build, ...)
  local have = redis.call('HGET', meta_key, 'build')
  if not have then
    return CHANGE.NOT_READY
  end
  if have ~= build then
    return CHANGE.OTHER_BUILD
  end
  if redis.call('EXISTS', ...) ~= select('#', ...) then
    return CHANGE.NOT_READY
  end
  return nil
end

-- Gives back what was debited under an adjustment id, once. Where nothing was, nothing may be any more:
-- the debit of a process that slept comes too late.
local function give_back(meta_key, stock_key, applied_key, id)
  local units = redis.call('HGET', meta_key, 'debit:' .. id)
  if not units then
    redis.call('SADD', applied_key, id)
    return CHANGE.NOT_HELD
  end
  if redis.call('SADD', applied_key, 'credit:' .. id) == 0 then
    return CHANGE.ALREADY
  end
  redis.call('INCRBY', stock_key, units)
  return CHANGE.APPLIED
end

-- cq1_admit: take units for one request.
-- KEYS  1 meta  2 stock  3 marks  4 buckets  5 record  6 nonce  7 outstanding  8 pending  9 stream
--       10 stats
-- ARGV  1 build  2 fence_version  3 sku_id  4 user_id  5 request_id  6 reservation_id
--       7 fingerprint  8 quantity  9 bucket  10 domain  11 permit_expires_at_ms
--       12 message without field 15  13 attempt (unique per call, the same in its retries)
--       14 traceparent or ''
-- Order of judgement: architecture, section 6.
local function admit(keys, args)
  local sku, user, request, reservation = args[3], args[4], args[5], args[6]
  local quantity = tonumber(args[8])

  -- 1 meta present and build as expected; every key that never is empty is there
  local m = redis.call('HMGET', keys[1], 'state', 'build', 'fence', 'open_at_ms', 'close_at_ms',
    'gate:' .. sku, 'bound:' .. sku, 'domain:' .. args[10], 'keep_until_ms', 'stream_max')
  local refused = not_mine(m[1], m[2], m[3], args[1], args[2])
  local needed, present = 2, redis.call('EXISTS', keys[2], keys[3])
  if m[8] then
    needed, present = 3, present + redis.call('EXISTS', keys[4])
  end
  if refused == OUTCOME.NOT_READY or present ~= needed or not m[6] then
    return answer(OUTCOME.NOT_READY)
  end

  -- 2 fence
  if refused then
    return answer(refused)
  end

  -- 3 replay
  local r = redis.call('HMGET', keys[5], 'state', 'reason', 'reservation', 'order', 'expires_at_ms',
    'quantity', 'fingerprint', 'admitted_at_ms', 'attempt', 'stream_id')
  local mark = read_mark(redis.call('HGET', keys[3], user))
  if r[1] and num(r[2]) ~= REASON.MOVED then
    local seen = { state = num(r[1]), reason = num(r[2]), reservation = r[3] or '', order = r[4] or '',
                   expires_at_ms = num(r[5]), quantity = num(r[6]), admitted_at_ms = num(r[8]),
                   request = request, sku = sku, stream_id = r[10] or '' }
    if r[7] and r[7] ~= '' and r[7] ~= args[7] then
      return answer(OUTCOME.CONFLICT, seen)
    end
    if r[9] and r[9] == args[13] then
      return answer(OUTCOME.ACCEPTED, seen)
    end
    return answer(OUTCOME.REPLAYED, seen)
  end
  if mark and mark.request == request and mark.sku == sku and not r[1] then
    if mark.quantity > 0 and mark.quantity ~= quantity then
      return answer(OUTCOME.CONFLICT, mark)
    end
    return answer(OUTCOME.REPLAYED, mark)
  end

  -- 4 window
  local now = now_ms()
  if now < num(m[4]) then
    return answer(OUTCOME.NOT_STARTED, { opens_in_ms = num(m[4]) - now })
  end
  if now >= num(m[5]) then
    return answer(OUTCOME.ENDED)
  end

  -- 5 bucket
  if not m[8] or redis.call('GETBIT', keys[4], args[9]) == 0 then
    return answer(OUTCOME.MOVED)
  end

  -- 6 buyer mark
  if mark then
    return held_by(mark)
  end

  -- 7 permit and nonce
  if now >= num(args[11]) or redis.call('EXISTS', keys[6]) == 1 then
    return answer(OUTCOME.PERMIT_INVALID)
  end

  -- 8 stock, behind what the gate declares about all of it
  local gate = num(m[6])
  if gate == GATE.PAUSED then
    return answer(OUTCOME.PAUSED)
  end
  if gate == GATE.FINAL_SOLD_OUT then
    return answer(OUTCOME.FINAL_SOLD_OUT)
  end
  local stock = num(redis.call('GET', keys[2]))
  if stock < quantity then
    redis.call('HINCRBY', keys[10], 'refused', 1)
    return answer(OUTCOME.TEMP_SOLD_OUT, { stock_left = math.max(stock, 0) })
  end

  -- 9 outstanding below the bound, and the stream below its own (it is never trimmed)
  local stream_max = num(m[10])
  if redis.call('ZCARD', keys[7]) >= num(m[7])
    or (stream_max > 0 and redis.call('XLEN', keys[9]) >= stream_max) then
    return answer(gate == GATE.THROTTLED and OUTCOME.THROTTLED or OUTCOME.QUEUE_FULL)
  end

  -- 10 take
  local message = args[12] .. 'y' .. struct.pack('<i8', now)
  local at = int(now)
  redis.call('DECRBY', keys[2], args[8])
  redis.call('HSET', keys[3], user, mark_text(STATE.ADMITTED, sku, request, reservation, quantity))
  local stream_id = redis.call('XADD', keys[9], '*', 'm', message, 't', args[14])
  redis.call('DEL', keys[5])
  redis.call('HSET', keys[5], 'state', int(STATE.ADMITTED), 'reservation', reservation,
    'fingerprint', args[7], 'quantity', args[8], 'admitted_at_ms', at, 'attempt', args[13],
    'stream_id', stream_id, 'version', '0')
  if num(m[9]) > 0 then
    redis.call('PEXPIREAT', keys[5], m[9])
  end
  redis.call('SET', keys[6], '1', 'PX', int(num(args[11]) - now + NONCE_MARGIN_MS))
  redis.call('ZADD', keys[7], at, reservation)
  redis.call('HSET', keys[8], reservation, args[8] .. '|' .. message)
  redis.call('HINCRBY', keys[10], 'admitted', 1)
  redis.call('HINCRBY', keys[10], 'outstanding_units', args[8])
  return answer(OUTCOME.ACCEPTED, { state = STATE.ADMITTED, reservation = reservation, request = request,
    sku = sku, admitted_at_ms = now, quantity = quantity, stream_id = stream_id })
end

redis.register_function('cq1_admit', admit)

-- cq1_precheck: would anything but time and stock stand against a first attempt? Changes nothing.
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

redis.register_function { function_name = 'cq1_precheck', callback = precheck, flags = { 'no-writes' } }

-- cq1_effect: apply one effect of the shard's outbox.
-- KEYS  1 meta  2 stock  3 marks  4 applied  5 record  6 outstanding  7 pending  8 stats
-- ARGV  1 build of the mirror as the shard has it  2 sku_id  3 user_id  4 request_id or ''
--       5 reservation_id or ''  6 effect_id ("credit:ID": what was debited under ID goes back, as
--         by cq1_credit, whatever stock_delta says)  7 stock_delta  8 stock_version
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

redis.register_function('cq1_effect', effect)

-- cq1_debit: take the units of a return before the shard is asked. Stock may go below 0: in flight
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

-- cq1_credit: give back a debit whose return the shard refused or voided. The mirror remembers how
-- much it was: a void names no units.
-- KEYS, reply as cq1_debit.  ARGV  1 build  2 sku_id  3 adjustment_id
local function credit(keys, args)
  local refused = unfit(keys[1], args[1], keys[2], keys[3], keys[4])
  if refused then
    return { refused, 0 }
  end
  local code = give_back(keys[1], keys[2], keys[4], args[3])
  return { code, num(redis.call('GET', keys[2])) }
end

redis.register_function('cq1_debit', debit)
redis.register_function('cq1_credit', credit)

-- cq1_acked: the log has the message: drop the stream entry, show QUEUED.
-- KEYS  1 stream  2 record   ARGV  1 stream_id  2 reservation_id   Reply { code, entries dropped }
local function acked(keys, args)
  local dropped = redis.call('XDEL', keys[1], args[1])
  local r = redis.call('HMGET', keys[2], 'state', 'reservation')
  if r[2] == args[2] and num(r[1]) == STATE.ADMITTED then
    redis.call('HSET', keys[2], 'state', int(STATE.QUEUED))
  end
  return { CHANGE.APPLIED, dropped }
end

redis.register_function('cq1_acked', acked)

-- cq1_switch: make a staged build the mirror.
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

-- cq1_set: change fields of the meta of one build.
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

-- cq1_fence: raise the fence version of the meta, so that every process below it stops at once.
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

-- cq1_buckets: replace the bitmap of one domain.
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

redis.register_function('cq1_switch', switch)
redis.register_function('cq1_set', set)
redis.register_function('cq1_fence', fence)
redis.register_function('cq1_buckets', buckets)

-- cq1_facts: one consistent read of one SKU of a mirror. Changes nothing.
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

-- cq1_record: what the mirror holds of one request. Changes nothing.
-- KEYS  1 meta  2 record  3 marks   ARGV  1 build  2 fence_version  3 sku_id  4 user_id  5 request_id
-- Reply as cq1_admit: REPLAYED with the record (or, the record being lost, the user's own mark);
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

redis.register_function { function_name = 'cq1_facts', callback = facts, flags = { 'no-writes' } }
redis.register_function { function_name = 'cq1_record', callback = record, flags = { 'no-writes' } }

