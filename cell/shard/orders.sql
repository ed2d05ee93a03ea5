-- One batch of admissions becomes orders and rejections (architecture 6, Orders). Three round trips
-- between the fence and the commit: lock and read; buyers; write.

-- name: position_read
SELECT topic_id, next_offset, leader_epoch FROM cellquota.positions WHERE topic = $1 AND partition = $2;

-- name: position_lock
SELECT topic_id, next_offset, leader_epoch FROM cellquota.positions WHERE topic = $1 AND partition = $2 FOR UPDATE;

-- name: position_start
INSERT INTO cellquota.positions (topic, partition, topic_id, next_offset, leader_epoch, updated_at)
VALUES ($1, $2, $3, $4, $5, cellquota.now()) ON CONFLICT (topic, partition) DO NOTHING;

-- name: position_reset
UPDATE cellquota.positions SET topic_id = $5, next_offset = $6, leader_epoch = $7, updated_at = cellquota.now()
WHERE topic = $1 AND partition = $2 AND topic_id = $3 AND next_offset = $4;

-- name: position_advance
UPDATE cellquota.positions SET next_offset = $5, leader_epoch = $6, updated_at = cellquota.now()
WHERE topic = $1 AND partition = $2 AND topic_id = $3 AND next_offset = $4 AND next_offset <= $5;

-- name: batch_now
SELECT cellquota.now();

-- Sorted before they are locked; the key never changes, so the order holds.
-- name: batch_lock_stock
SELECT s.campaign_id, s.sku_id, s.available, s.version FROM cellquota.stock s
JOIN unnest($1::text[], $2::text[]) AS k(campaign_id, sku_id) ON s.campaign_id = k.campaign_id AND s.sku_id = k.sku_id
ORDER BY s.campaign_id, s.sku_id FOR UPDATE OF s;

-- name: batch_fence
SELECT messages_from, state FROM cellquota.fence;

-- name: batch_rules
SELECT c.campaign_id, c.version, s.sku_id, c.open_at, c.close_at, c.purchase_scope,
  extract(epoch FROM c.reservation_ttl)::float8, cellquota.amount_text(s.amount), s.currency
FROM unnest($1::text[], $2::text[]) AS k(campaign_id, sku_id)
JOIN cellquota.campaigns c ON c.campaign_id = k.campaign_id
JOIN cellquota.skus s ON s.campaign_id = k.campaign_id AND s.sku_id = k.sku_id;

-- name: batch_rules_spec
SELECT version, rules FROM cellquota.campaigns WHERE campaign_id = $1;

-- name: batch_buckets
SELECT campaign_id, domain, bucket_from, bucket_to FROM cellquota.buckets WHERE campaign_id = ANY($1::text[]) AND state = 'OPEN';

-- name: batch_raised
SELECT campaign_id, scope_key, minted_fence, minted_count, raised_fence, raised_count
FROM cellquota.mirrors WHERE campaign_id = ANY($1::text[]);

-- Every attempt of the same requests, this message's own included, and what another cell answered
-- before a handover.
-- name: batch_earlier
SELECT (e.n - 1)::int, i.reservation_id, i.outcome = 'REJECTED', i.reason, i.fingerprint
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS e(campaign_id, sku_id, user_id, request_id, n)
JOIN cellquota.inbox i ON i.campaign_id = e.campaign_id AND i.sku_id = e.sku_id AND i.user_id = e.user_id AND i.request_id = e.request_id
UNION ALL
SELECT (e.n - 1)::int, c.reservation_id, c.outcome = 'REJECTED', c.reason, c.fingerprint
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS e(campaign_id, sku_id, user_id, request_id, n)
JOIN cellquota.carried_requests c ON c.campaign_id = e.campaign_id AND c.sku_id = e.sku_id AND c.user_id = e.user_id AND c.request_id = e.request_id;

-- Of these campaigns every message had its outcome, whose row may be gone. Read after batch_earlier.
-- name: batch_archived
SELECT campaign_id FROM cellquota.archives WHERE campaign_id = ANY($1::text[]) AND archived_at IS NOT NULL;

-- On a schema of step 3, where nothing was carried.
-- name: batch_earlier_step3
SELECT (e.n - 1)::int, i.reservation_id, i.outcome = 'REJECTED', i.reason, i.fingerprint
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS e(campaign_id, sku_id, user_id, request_id, n)
JOIN cellquota.inbox i ON i.campaign_id = e.campaign_id AND i.sku_id = e.sku_id AND i.user_id = e.user_id AND i.request_id = e.request_id;

-- Sorted by key, so that two batches that meet at a user wait in one order. What was not inserted
-- belongs to somebody: the next statement, with a later snapshot, sees whom (K14).
-- name: batch_buyers_take
INSERT INTO cellquota.buyers (campaign_id, scope_key, user_id, origin, reservation_id, created_at)
SELECT campaign_id, scope_key, user_id, 'OWN', reservation_id, cellquota.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS b(campaign_id, scope_key, user_id, reservation_id)
ORDER BY campaign_id, scope_key, user_id
ON CONFLICT (campaign_id, scope_key, user_id) DO NOTHING;

-- The request of a carried place came with it.
-- name: batch_buyers_read
SELECT (e.n - 1)::int, b.origin, b.reservation_id, coalesce(o.request_id, c.request_id, ''), coalesce(o.state, ''), coalesce(r.state, '')
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS e(campaign_id, scope_key, user_id, n)
JOIN cellquota.buyers b ON b.campaign_id = e.campaign_id AND b.scope_key = e.scope_key AND b.user_id = e.user_id
LEFT JOIN cellquota.orders o ON o.reservation_id = b.reservation_id
LEFT JOIN cellquota.reservations r ON r.reservation_id = b.reservation_id
LEFT JOIN cellquota.carried_requests c ON c.reservation_id = b.reservation_id AND b.origin = 'CARRIED';

-- name: batch_buyers_read_step3
SELECT (e.n - 1)::int, b.origin, b.reservation_id, coalesce(o.request_id, ''), coalesce(o.state, ''), coalesce(r.state, '')
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS e(campaign_id, scope_key, user_id, n)
JOIN cellquota.buyers b ON b.campaign_id = e.campaign_id AND b.scope_key = e.scope_key AND b.user_id = e.user_id
LEFT JOIN cellquota.orders o ON o.reservation_id = b.reservation_id
LEFT JOIN cellquota.reservations r ON r.reservation_id = b.reservation_id;

-- name: batch_buyers_drop
DELETE FROM cellquota.buyers b
USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS e(campaign_id, scope_key, user_id, reservation_id)
WHERE b.campaign_id = e.campaign_id AND b.scope_key = e.scope_key AND b.user_id = e.user_id AND b.reservation_id = e.reservation_id;

-- Reservation and order of every winner; all are arrays, but $14, the time from which expires_at was counted.
-- name: batch_orders_insert
WITH e AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::text[], $9::text[], $10::timestamptz[],
      $11::bigint[], $12::bigint[], $13::text[], $15::text[])
    AS e(order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, expires_at, fence_version, build_count, device_id, traceparent)
), r AS (
  INSERT INTO cellquota.reservations (reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, fence_version, build_count,
    device_id, expires_at, created_at, updated_at)
  SELECT reservation_id, request_id, campaign_id, sku_id, user_id, quantity, 'RESERVED', fence_version, build_count, device_id, expires_at, $14, $14 FROM e
)
INSERT INTO cellquota.orders (order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, state, version,
  expires_at, close_after, created_at, traceparent)
SELECT order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount::numeric, currency, 'PENDING_PAYMENT', 1,
  expires_at, expires_at, $14::timestamptz, traceparent FROM e;

-- On a schema of step 4, which keeps no trace.
-- name: batch_orders_insert_step4
WITH e AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::text[], $9::text[], $10::timestamptz[],
      $11::bigint[], $12::bigint[], $13::text[])
    AS e(order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, expires_at, fence_version, build_count, device_id)
), r AS (
  INSERT INTO cellquota.reservations (reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, fence_version, build_count,
    device_id, expires_at, created_at, updated_at)
  SELECT reservation_id, request_id, campaign_id, sku_id, user_id, quantity, 'RESERVED', fence_version, build_count, device_id, expires_at, $14, $14 FROM e
)
INSERT INTO cellquota.orders (order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, state, version,
  expires_at, close_after, created_at)
SELECT order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount::numeric, currency, 'PENDING_PAYMENT', 1,
  expires_at, expires_at, $14::timestamptz FROM e;

-- name: batch_inbox_insert
INSERT INTO cellquota.inbox (event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, fingerprint,
  topic, partition, kafka_offset, fence_version, build_count, written_under, admitted_at, received_at)
SELECT 'reserve-' || reservation_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, fingerprint,
  $14::text, $15::int, kafka_offset, fence_version, build_count, $16::bigint, admitted_at, $17::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[],
    $12::bigint[], $13::timestamptz[])
  AS e(reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, fingerprint, kafka_offset, fence_version, build_count, admitted_at);

-- name: parked_insert
INSERT INTO cellquota.parked (topic, partition, topic_id, kafka_offset, error_class, value, parked_at)
VALUES ($1, $2, $3, $4, $5, $6, cellquota.now()) ON CONFLICT (topic, topic_id, partition, kafka_offset) DO NOTHING;
