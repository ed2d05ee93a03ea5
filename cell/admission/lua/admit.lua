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
  local quantity, call = tonumber(args[8]), redis.call

  -- 1 meta present and build as expected; every key that never is empty is there. What is read here is
  -- judged below: each key is asked once.
  local m = call('HMGET', keys[1], 'state', 'build', 'fence', 'open_at_ms', 'close_at_ms',
    'gate:' .. sku, 'bound:' .. sku, 'domain:' .. args[10], 'keep_until_ms', 'stream_max')
  local refused = not_mine(m[1], m[2], m[3], args[1], args[2])
  local marks = call('HMGET', keys[3], user, GUARD)
  local stock = call('GET', keys[2])
  local owned = m[8] and call('GETBIT', keys[4], args[9]) == 1
  if refused == OUTCOME.NOT_READY or not stock or not marks[2] or not m[6]
    or (m[8] and not owned and call('EXISTS', keys[4]) == 0) then
    return answer(OUTCOME.NOT_READY)
  end

  -- 2 fence
  if refused then
    return answer(refused)
  end

  -- 3 replay
  local r = call('HMGET', keys[5], 'state', 'reason', 'reservation', 'order', 'expires_at_ms',
    'quantity', 'fingerprint', 'admitted_at_ms', 'attempt', 'stream_id')
  local mark = read_mark(marks[1])
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
  if not owned then
    return answer(OUTCOME.MOVED)
  end

  -- 6 buyer mark
  if mark then
    return held_by(mark)
  end

  -- 7 permit; its nonce is looked at below, before anything is said of 8 and 9
  if now >= num(args[11]) then
    return answer(OUTCOME.PERMIT_INVALID)
  end

  -- 8 stock, behind what the gate declares about all of it
  -- 9 outstanding below the bound, and the stream below its own (it is never trimmed)
  local gate, stream_max, no = num(m[6]), num(m[10]), nil
  stock = num(stock)
  if gate == GATE.PAUSED then
    no = OUTCOME.PAUSED
  elseif gate == GATE.FINAL_SOLD_OUT then
    no = OUTCOME.FINAL_SOLD_OUT
  elseif stock < quantity then
    no = OUTCOME.TEMP_SOLD_OUT
  elseif call('ZCARD', keys[7]) >= num(m[7]) or (stream_max > 0 and call('XLEN', keys[9]) >= stream_max) then
    no = gate == GATE.THROTTLED and OUTCOME.THROTTLED or OUTCOME.QUEUE_FULL
  end
  if no then
    if call('EXISTS', keys[6]) == 1 then
      return answer(OUTCOME.PERMIT_INVALID)
    end
    if no == OUTCOME.TEMP_SOLD_OUT then
      call('HINCRBY', keys[10], 'refused', 1)
      return answer(no, { stock_left = math.max(stock, 0) })
    end
    return answer(no, { stock_left = no == OUTCOME.THROTTLED and math.max(stock, 0) or 0 })
  end

  -- 10 take; the nonce first, because a burnt one refuses
  if not call('SET', keys[6], '1', 'NX', 'PX', int(num(args[11]) - now + NONCE_MARGIN_MS)) then
    return answer(OUTCOME.PERMIT_INVALID)
  end
  local message = args[12] .. 'y' .. struct.pack('<i8', now)
  local at = int(now)
  call('DECRBY', keys[2], args[8])
  call('HSET', keys[3], user, mark_text(STATE.ADMITTED, sku, request, reservation, quantity))
  local stream_id = call('XADD', keys[9], '*', 'm', message, 't', args[14])
  if r[1] then -- of an attempt that had moved
    call('DEL', keys[5])
  end
  call('HSET', keys[5], 'state', int(STATE.ADMITTED), 'reservation', reservation,
    'fingerprint', args[7], 'quantity', args[8], 'admitted_at_ms', at, 'attempt', args[13],
    'stream_id', stream_id, 'version', '0')
  if m[9] and m[9] ~= '0' then
    call('PEXPIREAT', keys[5], m[9])
  end
  call('ZADD', keys[7], at, reservation)
  call('HSET', keys[8], reservation, args[8] .. '|' .. message)
  call('HINCRBY', keys[10], 'admitted', 1)
  call('HINCRBY', keys[10], 'outstanding_units', args[8])
  return answer(OUTCOME.ACCEPTED, { state = STATE.ADMITTED, reservation = reservation, request = request,
    sku = sku, admitted_at_ms = now, quantity = quantity, stream_id = stream_id })
end

redis.register_function('cq2_admit', admit)
