-- cq2_admit: take units for one request.
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

redis.register_function('cq2_admit', admit)
