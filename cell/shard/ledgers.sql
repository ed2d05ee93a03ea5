-- What reconcile reads, in pages and by id. Only views, so that a standby's reader may be asked; a page is
-- of its own snapshot, a look at some ids of one.

-- name: reconcile_known
SELECT to_regclass('cellquota.v_reconcile_holds') IS NOT NULL AND to_regclass('cellquota.archives') IS NOT NULL;

-- name: reconcile_inbox_page
SELECT event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, fence_version, build_count, topic, received_at
FROM cellquota.v_reconcile_inbox WHERE event_id > $1 AND ($3 = '' OR campaign_id = $3) ORDER BY event_id LIMIT $2;

-- name: reconcile_holds_page
SELECT reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, reason, created_at, updated_at, coalesce(order_id, ''), coalesce(order_quantity, 0),
  coalesce(order_state, ''), coalesce(order_version, 0), coalesce(extract(epoch FROM cellquota.now() - due_at)::bigint, 0), paid, coalesce(buyer, ''), coalesce(tokens, false), token_rows
FROM cellquota.v_reconcile_holds WHERE reservation_id > $1 AND ($3 = '' OR campaign_id = $3) ORDER BY reservation_id LIMIT $2;

-- name: reconcile_entries_page
SELECT entry_id, campaign_id, sku_id, action, business_no, delta_available, delta_reserved, delta_confirmed, stock_version, reversed
FROM cellquota.v_reconcile_entries WHERE business_no >= $1 AND (business_no > $1 OR entry_id > $2) AND action IN ('RESERVE', 'CONFIRM', 'RELEASE')
  AND ($4 = '' OR campaign_id = $4)
ORDER BY business_no, entry_id LIMIT $3;

-- name: reconcile_buyers_page
SELECT campaign_id, scope_key, user_id, reservation_id, orphan FROM cellquota.v_reconcile_buyers
WHERE (campaign_id, scope_key, user_id) > ($1, $2, $3) AND ($5 = '' OR campaign_id = $5) ORDER BY campaign_id, scope_key, user_id LIMIT $4;

-- name: reconcile_chain_page
SELECT entry_id, stock_version, before_available, before_reserved, before_confirmed, after_available, after_reserved, after_confirmed, business_no, orphan
FROM cellquota.v_reconcile_chain WHERE campaign_id = $1 AND sku_id = $2 AND entry_id > $3 ORDER BY entry_id LIMIT $4;

-- name: reconcile_inbox_of
SELECT event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, fence_version, build_count, topic, received_at
FROM cellquota.v_reconcile_inbox WHERE event_id = ANY($1::text[]) ORDER BY event_id;

-- name: reconcile_holds_of
SELECT reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, reason, created_at, updated_at, coalesce(order_id, ''), coalesce(order_quantity, 0),
  coalesce(order_state, ''), coalesce(order_version, 0), coalesce(extract(epoch FROM cellquota.now() - due_at)::bigint, 0), paid, coalesce(buyer, ''), coalesce(tokens, false), token_rows
FROM cellquota.v_reconcile_holds WHERE reservation_id = ANY($1::text[]) ORDER BY reservation_id;

-- name: reconcile_entries_of
SELECT entry_id, campaign_id, sku_id, action, business_no, delta_available, delta_reserved, delta_confirmed, stock_version, reversed
FROM cellquota.v_reconcile_entries WHERE business_no = ANY($1::text[]) AND action IN ('RESERVE', 'CONFIRM', 'RELEASE') ORDER BY business_no, entry_id;

-- Buyers whose place is of these reservations' users: a mark is compared with its user's place.
-- name: reconcile_buyers_of
SELECT b.campaign_id, b.scope_key, b.user_id, b.reservation_id, b.orphan
FROM unnest($1::text[], $2::text[], $3::text[]) AS e(campaign_id, scope_key, user_id)
CROSS JOIN LATERAL (SELECT * FROM cellquota.v_reconcile_buyers p -- one by one, however few the planner thinks there are
  WHERE p.campaign_id = e.campaign_id AND p.scope_key = e.scope_key AND p.user_id = e.user_id OFFSET 0) b;

-- Effects of these aggregates that have not left, or never will without help.
-- name: reconcile_effects_of
SELECT aggregate, state FROM cellquota.outbox WHERE aggregate = ANY($1::text[]) AND target = 'MIRROR' AND state IN ('PENDING', 'PARKED');

-- Every SKU's stock row beside the last entry of its ledger, in one snapshot: both are written together.
-- name: reconcile_stocks
WITH waiting AS MATERIALIZED (SELECT campaign_id, sku_id, count(*) AS n FROM cellquota.outbox WHERE target = 'MIRROR' AND state = 'PENDING' GROUP BY 1, 2)
SELECT s.campaign_id, s.sku_id, s.granted, s.available, s.reserved, s.confirmed, s.version, coalesce(l.entry_id, 0), coalesce(l.stock_version, 0),
  coalesce(l.after_available, 0), coalesce(l.after_reserved, 0), coalesce(l.after_confirmed, 0),
  coalesce((SELECT w.n FROM waiting w WHERE w.campaign_id = s.campaign_id AND w.sku_id = s.sku_id), 0),
  CASE c.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE s.sku_id END, coalesce(m.raised_fence, 0), coalesce(m.raised_count, 0),
  CASE WHEN s.adjustment_version = (SELECT fence_version FROM cellquota.fence) THEN s.last_number ELSE 0 END
FROM cellquota.stock s LEFT JOIN cellquota.campaigns c ON c.campaign_id = s.campaign_id
LEFT JOIN cellquota.mirrors m ON m.campaign_id = s.campaign_id AND m.scope_key = CASE c.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE s.sku_id END
LEFT JOIN LATERAL (SELECT * FROM cellquota.v_reconcile_chain l WHERE l.campaign_id = s.campaign_id AND l.sku_id = s.sku_id ORDER BY l.entry_id DESC LIMIT 1) l ON true
WHERE ($1 = '' OR s.campaign_id = $1) AND s.campaign_id NOT IN (SELECT campaign_id FROM cellquota.archives WHERE archived_at IS NOT NULL)
ORDER BY s.campaign_id, s.sku_id;

-- A page of adjustments that changed stock, with whether the ledger has their entry.
-- name: reconcile_adjustments_page
SELECT a.adjustment_id, a.campaign_id, a.sku_id, a.units, EXISTS (SELECT FROM cellquota.ledger l
  WHERE l.business_no = a.adjustment_id AND l.campaign_id = a.campaign_id AND l.sku_id = a.sku_id AND l.action = a.kind)
FROM cellquota.adjustments a WHERE a.adjustment_id > $1 AND a.outcome = 'APPLIED' AND ($3 = '' OR a.campaign_id = $3)
  AND a.campaign_id NOT IN (SELECT campaign_id FROM cellquota.archives WHERE archived_at IS NOT NULL)
ORDER BY a.adjustment_id LIMIT $2;
