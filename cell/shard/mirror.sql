-- Lives of the mirrors: builds minted, barriers consumed, builds raised; and the snapshot that a new
-- mirror is made from. A raise locks the stock rows of its scope first: batches of orders in flight,
-- which hold them, end before it, so no order of an older build commits behind a snapshot that was
-- taken after the raise.

-- A build ends what the shard sold alone (direct.sql): whoever mints takes the place of 'baseline'.
-- name: mirror_mint
INSERT INTO cellquota.mirrors AS m (campaign_id, scope_key, minted_fence, minted_count, claimed_by, claimed_until)
VALUES ($1, $2, $3::bigint, 1, $4, cellquota.now() + make_interval(secs => $5::float8))
ON CONFLICT (campaign_id, scope_key) DO UPDATE SET
  minted_fence = excluded.minted_fence,
  minted_count = CASE WHEN m.minted_fence = excluded.minted_fence THEN m.minted_count + 1 ELSE 1 END,
  claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until, barriers_seen = '{}'
WHERE m.minted_fence <= excluded.minted_fence
  AND (m.claimed_by IN ('', 'baseline', excluded.claimed_by) OR m.claimed_until IS NULL OR m.claimed_until < cellquota.now())
RETURNING minted_fence, minted_count,
  raised_count > 0 AND raised_fence >= (SELECT messages_from FROM cellquota.fence);

-- name: mirror_release
UPDATE cellquota.mirrors SET claimed_by = '', claimed_until = NULL WHERE campaign_id = $1 AND scope_key = $2 AND claimed_by = $3;

-- name: mirror_lock_stock
SELECT sku_id FROM cellquota.stock WHERE campaign_id = $1 AND ($2 = '*' OR sku_id = $2) ORDER BY sku_id FOR UPDATE;

-- name: mirror_lock
SELECT minted_fence, minted_count, raised_fence, raised_count FROM cellquota.mirrors
WHERE campaign_id = $1 AND scope_key = $2 FOR UPDATE;

-- Without a barrier only when no message of an older build can still become an order.
-- name: mirror_raise
UPDATE cellquota.mirrors SET raised_fence = $3, raised_count = $4
WHERE campaign_id = $1 AND scope_key = $2 AND minted_fence = $3 AND minted_count = $4
  AND (raised_count = 0 OR raised_fence < (SELECT messages_from FROM cellquota.fence)
       OR (raised_fence, raised_count) = ($3::bigint, $4::bigint));

-- The barrier of one partition was consumed; the last one raises the build. Another build than the
-- newest minted changes nothing, and nothing is ever lowered.
-- name: mirror_barrier
UPDATE cellquota.mirrors SET
  barriers_seen = CASE WHEN $5::int = ANY(barriers_seen) THEN barriers_seen ELSE barriers_seen || $5::int END,
  raised_fence = CASE WHEN cardinality(barriers_seen) + CASE WHEN $5::int = ANY(barriers_seen) THEN 0 ELSE 1 END >= $6::int THEN $3 ELSE raised_fence END,
  raised_count = CASE WHEN cardinality(barriers_seen) + CASE WHEN $5::int = ANY(barriers_seen) THEN 0 ELSE 1 END >= $6::int THEN $4 ELSE raised_count END
WHERE campaign_id = $1 AND scope_key = $2 AND minted_fence = $3::bigint AND minted_count = $4::bigint
  AND (raised_fence, raised_count) < ($3::bigint, $4::bigint)
RETURNING raised_fence = $3::bigint AND raised_count = $4::bigint;

-- name: mirror_raised
SELECT raised_fence, raised_count FROM cellquota.mirrors WHERE campaign_id = $1 AND scope_key = $2;

-- name: snapshot_facts
SELECT f.messages_from, coalesce(m.raised_fence, 0), coalesce(m.raised_count, 0)
FROM cellquota.fence f LEFT JOIN cellquota.mirrors m ON m.campaign_id = $1 AND m.scope_key = $2;

-- name: snapshot_stocks
SELECT s.sku_id, s.available, s.version, CASE WHEN s.adjustment_version = f.fence_version THEN s.last_number ELSE 0 END
FROM cellquota.stock s CROSS JOIN cellquota.fence f WHERE s.campaign_id = $1 AND ($2 = '*' OR s.sku_id = $2) ORDER BY s.sku_id;

-- name: snapshot_marks
DECLARE marks NO SCROLL CURSOR FOR
SELECT b.user_id, b.reservation_id, b.origin, coalesce(r.request_id, c.request_id, ''), coalesce(r.sku_id, c.sku_id, ''), coalesce(r.quantity, c.quantity, 0), coalesce(r.state, ''), coalesce(o.state, '')
FROM cellquota.buyers b LEFT JOIN cellquota.reservations r ON r.reservation_id = b.reservation_id
  LEFT JOIN cellquota.orders o ON o.reservation_id = b.reservation_id
  LEFT JOIN cellquota.carried_requests c ON c.reservation_id = b.reservation_id AND b.origin = 'CARRIED'
WHERE b.campaign_id = $1 AND b.scope_key = $2;

-- name: snapshot_marks_step3
DECLARE marks NO SCROLL CURSOR FOR
SELECT b.user_id, b.reservation_id, b.origin, coalesce(r.request_id, ''), coalesce(r.sku_id, ''), coalesce(r.quantity, 0), coalesce(r.state, ''), coalesce(o.state, '')
FROM cellquota.buyers b LEFT JOIN cellquota.reservations r ON r.reservation_id = b.reservation_id
  LEFT JOIN cellquota.orders o ON o.reservation_id = b.reservation_id
WHERE b.campaign_id = $1 AND b.scope_key = $2;

-- name: snapshot_requests
DECLARE requests NO SCROLL CURSOR FOR
SELECT i.request_id, i.campaign_id, i.sku_id, i.user_id, i.quantity, i.reservation_id, i.fingerprint, i.outcome, i.reason,
  i.fence_version, i.build_count, i.admitted_at,
  coalesce(o.order_id, ''), coalesce(o.state, ''), coalesce(r.state, ''), coalesce(o.reason, ''), coalesce(o.version, 0), o.expires_at
FROM cellquota.inbox i LEFT JOIN cellquota.orders o ON o.reservation_id = i.reservation_id
  LEFT JOIN cellquota.reservations r ON r.reservation_id = i.reservation_id
WHERE i.campaign_id = $1 AND ($2 = '*' OR i.sku_id = $2)
ORDER BY i.fence_version, i.build_count;

-- name: snapshot_fetch_marks
FETCH 2000 FROM marks;

-- name: snapshot_fetch_requests
FETCH 2000 FROM requests;
