-- Payments, cancels and closings: orders locked by id, then read in later statements, then changed
-- by compare-and-set on state and version.

-- name: step_lock
SELECT order_id FROM cellquota.orders WHERE order_id = ANY($1::text[]) ORDER BY order_id FOR UPDATE;

-- Due by the database's clock, asked once (a volatile condition is none for an index), and not looked at by another closer. Never before the shard has been
-- writable for the grace, nor within the grace after a restore.
-- name: step_lock_due
SELECT o.order_id FROM cellquota.orders o
WHERE o.state = 'PENDING_PAYMENT' AND o.close_after <= (SELECT cellquota.now()) AND o.expires_at <= (SELECT cellquota.now())
  AND EXISTS (SELECT FROM cellquota.heartbeat h WHERE h.writable_since + make_interval(secs => $2::float8) <= cellquota.now())
  AND NOT EXISTS (SELECT FROM cellquota.fence_history f WHERE f.state = 'SETTLE_ONLY' AND f.fence_version = $3::bigint
                  AND f.at + make_interval(secs => $4::float8) > cellquota.now())
ORDER BY o.close_after LIMIT $1 FOR UPDATE OF o SKIP LOCKED;

-- name: step_lease
UPDATE cellquota.orders SET close_after = cellquota.now() + make_interval(secs => $2::float8)
WHERE order_id = ANY($1::text[]) AND state NOT IN ('PAID', 'CLOSED');

-- Unpaid orders of cancelled campaigns, whatever their time: first those without an open attempt, and in
-- the places that are left at most $7 with one, the longest unasked first, a second at least after it was
-- last looked at. One in review waits for a person.
-- name: step_lock_cancelled
WITH free AS MATERIALIZED (
  SELECT o.order_id FROM cellquota.orders o
  WHERE o.campaign_id = ANY($1::text[]) AND o.state = 'PENDING_PAYMENT' AND o.close_after < 'infinity'
    AND EXISTS (SELECT FROM cellquota.heartbeat h WHERE h.writable_since + make_interval(secs => $3::float8) <= cellquota.now())
    AND NOT EXISTS (SELECT FROM cellquota.fence_history f WHERE f.state = 'SETTLE_ONLY' AND f.fence_version = $4::bigint
                    AND f.at + make_interval(secs => $5::float8) > cellquota.now())
    AND NOT EXISTS (SELECT FROM cellquota.payments p WHERE p.order_id = o.order_id AND p.state IN ('INITIATED', 'UNKNOWN'))
  ORDER BY o.campaign_id, o.order_id LIMIT $2::bigint FOR UPDATE OF o SKIP LOCKED
), attempted AS MATERIALIZED (
  SELECT o.order_id FROM cellquota.orders o CROSS JOIN LATERAL (
    SELECT max(p.updated_at) AS at FROM cellquota.payments p WHERE p.order_id = o.order_id AND p.state IN ('INITIATED', 'UNKNOWN')) looked
  WHERE o.campaign_id = ANY($1::text[]) AND o.state = 'PENDING_PAYMENT' AND o.close_after < 'infinity'
    AND EXISTS (SELECT FROM cellquota.heartbeat h WHERE h.writable_since + make_interval(secs => $3::float8) <= cellquota.now())
    AND NOT EXISTS (SELECT FROM cellquota.fence_history f WHERE f.state = 'SETTLE_ONLY' AND f.fence_version = $4::bigint
                    AND f.at + make_interval(secs => $5::float8) > cellquota.now())
    AND looked.at + make_interval(secs => $6::float8) <= cellquota.now()
  ORDER BY looked.at, o.order_id LIMIT least($7::bigint, $2::bigint - (SELECT count(*) FROM free)) FOR UPDATE OF o SKIP LOCKED
)
SELECT order_id FROM free UNION ALL SELECT order_id FROM attempted;

-- name: step_read
SELECT o.order_id, o.reservation_id, o.request_id, o.campaign_id, o.sku_id, o.user_id, o.quantity, cellquota.amount_text(o.amount), o.currency,
  o.state, r.state, o.reason, o.version, o.created_at, o.expires_at, o.paid_at, o.closed_at, ''::text,
  o.close_after, n.now, c.version, r.device_id, o.traceparent
FROM cellquota.orders o JOIN cellquota.reservations r ON r.reservation_id = o.reservation_id
  JOIN cellquota.campaigns c ON c.campaign_id = o.campaign_id
  CROSS JOIN (SELECT cellquota.now() AS now) n
WHERE o.order_id = ANY($1::text[]) ORDER BY o.order_id;

-- On a schema of step 4, which keeps no trace.
-- name: step_read_step4
SELECT o.order_id, o.reservation_id, o.request_id, o.campaign_id, o.sku_id, o.user_id, o.quantity, cellquota.amount_text(o.amount), o.currency,
  o.state, r.state, o.reason, o.version, o.created_at, o.expires_at, o.paid_at, o.closed_at, ''::text,
  o.close_after, n.now, c.version, r.device_id, ''::text
FROM cellquota.orders o JOIN cellquota.reservations r ON r.reservation_id = o.reservation_id
  JOIN cellquota.campaigns c ON c.campaign_id = o.campaign_id
  CROSS JOIN (SELECT cellquota.now() AS now) n
WHERE o.order_id = ANY($1::text[]) ORDER BY o.order_id;

-- name: step_payments
SELECT order_id, payment_id, state, coalesce(refund_id, ''), updated_at FROM cellquota.payments WHERE order_id = ANY($1::text[]) ORDER BY order_id, created_at, payment_id;

-- name: step_payments_write
INSERT INTO cellquota.payments AS p (order_id, payment_id, amount, currency, state, refund_id, created_at, updated_at)
SELECT order_id, payment_id, amount::numeric, currency, state, nullif(refund_id, ''), cellquota.now(), cellquota.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS e(order_id, payment_id, amount, currency, state, refund_id)
ON CONFLICT (order_id, payment_id) DO UPDATE SET state = excluded.state, refund_id = coalesce(excluded.refund_id, p.refund_id), updated_at = excluded.updated_at;

-- Orders and reservations that are named by their key are not said to be in the state of a partial index:
-- a plan made while it is empty would read all of it for each of them, for ever (TestPlans).
-- name: step_orders_write
UPDATE cellquota.orders o SET state = e.state, reason = e.reason, version = o.version + 1,
  close_after = CASE WHEN e.park THEN 'infinity' ELSE e.close_after END,
  paid_at = CASE e.state WHEN 'PAID' THEN $8::timestamptz END, closed_at = CASE e.state WHEN 'CLOSED' THEN $8::timestamptz END
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::bool[])
  AS e(order_id, version, was, state, reason, close_after, park)
WHERE o.order_id = e.order_id AND o.version = e.version AND o.state = e.was AND o.state NOT IN ('PAID', 'CLOSED');

-- name: step_reservations_write
UPDATE cellquota.reservations r SET state = e.state, reason = e.reason, updated_at = cellquota.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS e(reservation_id, was, state, reason)
WHERE r.reservation_id = e.reservation_id AND r.state = e.was AND r.state NOT IN ('CONFIRMED', 'RELEASED');

-- name: step_refusals_write
INSERT INTO cellquota.payment_refusals (digest, payment_id, order_id, amount, currency, status, cause, received_at)
SELECT *, cellquota.now() FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
ON CONFLICT (digest) DO NOTHING;
