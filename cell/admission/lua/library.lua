#!lua name=cellquota_v2
-- cellquota_v2: everything that changes or judges a mirror, one call, one atomic step. This file is
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
--   Cost      Every function makes a fixed number of O(1) or O(log N) steps, cq2_switch one per key
--             given.
--   Memory    At maxmemory what would take more is refused whole, before its first step (cq2_admit, cq2_switch,
--             cq2_buckets, cq2_debit). What lets the mirror drain or stops it goes on (allow-oom):
--             cq2_acked, cq2_effect, cq2_credit, cq2_set, cq2_fence; each adds a few hundred bytes at most.
--   Retries   Every function may be called again with the same arguments; the second call changes
--             nothing and answers alike.
--
-- INVARIANTS
--   The nonce, the units, the mark, the record, the outstanding entry and the stream entry of an
--   admission appear together or not at all. A stock effect counts once per effect id. Nothing here
--   is evidence of a sale.

-- outcomes of cq2_admit and cq2_precheck
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
  TOO_MANY_UNPAID = 19, -- said by holds.go, before the script
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

-- The field that keeps the marks from being empty: no user has that name.
local GUARD = ''

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

-- The answer of cq2_admit and cq2_precheck:
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
