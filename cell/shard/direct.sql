-- Orders that customers ask for themselves, without mirror and log (admission: DATABASE, baseline_rps).
-- Everything else of that transaction is the batch of orders (orders.sql).

-- Who holds a user's place, as a request; nothing for a place that a handover carried here.
-- name: direct_winner
SELECT o.request_id, o.sku_id, o.quantity, o.order_id, o.state, r.state, o.reason, o.expires_at, r.fence_version, r.build_count
FROM cellquota.orders o JOIN cellquota.reservations r ON r.reservation_id = o.reservation_id
WHERE o.reservation_id = $1;

-- What stands against a first attempt, beside time and stock.
-- name: direct_precheck
SELECT (e.n - 1)::int, coalesce(b.reservation_id, '')
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS e(campaign_id, sku_id, user_id, n)
JOIN cellquota.campaigns c ON c.campaign_id = e.campaign_id
LEFT JOIN cellquota.buyers b ON b.campaign_id = e.campaign_id AND b.user_id = e.user_id
  AND b.scope_key = CASE c.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE e.sku_id END;

-- The right of the shard alone: claimed_by is 'baseline' from the moment at which the last barrier of
-- the newest build was consumed until the next build is minted. claimed_until is the time until which
-- its rate is used up. Rows in one order, after the stock rows.
-- name: baseline_lock
SELECT m.campaign_id, m.scope_key, m.raised_fence, m.raised_count, m.claimed_until
FROM cellquota.mirrors m JOIN unnest($1::text[], $2::text[]) AS k(campaign_id, scope_key)
  ON m.campaign_id = k.campaign_id AND m.scope_key = k.scope_key
WHERE m.claimed_by = 'baseline' AND (m.minted_fence, m.minted_count) = (m.raised_fence, m.raised_count)
ORDER BY m.campaign_id, m.scope_key FOR UPDATE OF m;

-- name: baseline_use
UPDATE cellquota.mirrors SET claimed_until = $3 WHERE campaign_id = $1 AND scope_key = $2 AND claimed_by = 'baseline';

-- Only by whoever minted the build that was raised.
-- name: baseline_open
UPDATE cellquota.mirrors SET claimed_by = 'baseline', claimed_until = NULL
WHERE campaign_id = $1 AND scope_key = $2 AND claimed_by = $3
  AND (minted_fence, minted_count) = ($4::bigint, $5::bigint) AND (raised_fence, raised_count) = ($4::bigint, $5::bigint);

-- name: baseline_of
SELECT raised_fence, raised_count, claimed_by = 'baseline' AND (minted_fence, minted_count) = (raised_fence, raised_count)
FROM cellquota.mirrors WHERE campaign_id = $1 AND scope_key = $2;
