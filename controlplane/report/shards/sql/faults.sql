-- Every row is one breach: invariant, campaign, SKU, what is wrong. At most $2 rows of each kind.
-- $1: campaign, or '' for all. $3: 'CAMPAIGN/SKU' of the SKUs in TOKEN mode; one that has token rows is one anyway.
WITH ledger AS (
  SELECT l.*, lag(after_available, 1, 0) OVER w AS was_available, lag(after_reserved, 1, 0) OVER w AS was_reserved, lag(after_confirmed, 1, 0) OVER w AS was_confirmed
  FROM cellquota.v_ledger l WHERE $1 = '' OR campaign_id = $1
  WINDOW w AS (PARTITION BY campaign_id, sku_id ORDER BY entry_id)
), sums AS (
  SELECT campaign_id, sku_id, sum(delta_available) AS available, sum(delta_reserved) AS reserved, sum(delta_confirmed) AS confirmed FROM ledger GROUP BY 1, 2
), acts AS (
  SELECT campaign_id, sku_id, business_no, count(*) FILTER (WHERE action = 'RESERVE') AS reserves,
         count(*) FILTER (WHERE action = 'CONFIRM') AS confirms, count(*) FILTER (WHERE action = 'RELEASE') AS releases
  FROM ledger WHERE action IN ('RESERVE', 'CONFIRM', 'RELEASE') AND entry_id NOT IN (SELECT reverses FROM ledger WHERE reverses IS NOT NULL) GROUP BY 1, 2, 3 -- what was reversed counts as none
), tokens AS (
  SELECT campaign_id, sku_id, count(*) FILTER (WHERE state = 'FREE') AS free, count(*) FILTER (WHERE state = 'BOUND') AS bound,
         count(*) FILTER (WHERE state = 'SOLD') AS sold, count(*) FILTER (WHERE state = 'SEALED') AS sealed
  FROM cellquota.v_tokens WHERE $1 = '' OR campaign_id = $1 GROUP BY 1, 2
), parted AS ( -- what left the cell for good, by the ledger
  SELECT campaign_id, sku_id, -sum(delta_available + delta_reserved + delta_confirmed) AS units FROM ledger
  WHERE delta_available + delta_reserved + delta_confirmed < 0 GROUP BY 1, 2
), held AS (
  SELECT reservation_id, count(*) FILTER (WHERE state = 'BOUND') AS bound, count(*) FILTER (WHERE state = 'SOLD') AS sold
  FROM cellquota.v_tokens WHERE reservation_id IS NOT NULL AND ($1 = '' OR campaign_id = $1) GROUP BY 1
)
(SELECT 'I2', campaign_id, sku_id, format('granted %s, available %s + reserved %s + confirmed %s', granted, available, reserved, confirmed)
 FROM cellquota.v_stock WHERE ($1 = '' OR campaign_id = $1)
   AND (granted <> available + reserved + confirmed OR least(available, reserved, confirmed) < 0) LIMIT $2)
UNION ALL
(SELECT 'I2', s.campaign_id, s.sku_id, format('reserved %s in the stock row, %s in reservations; confirmed %s and %s restocked, %s in reservations', s.reserved, coalesce(r.reserved, 0),
   s.confirmed, coalesce(b.units, 0), coalesce(r.confirmed, 0))
 FROM cellquota.v_stock s LEFT JOIN (SELECT campaign_id, sku_id, sum(quantity) FILTER (WHERE state IN ('RESERVED', 'MANUAL_REVIEW')) AS reserved,
   sum(quantity) FILTER (WHERE state = 'CONFIRMED') AS confirmed FROM cellquota.v_reservations WHERE $1 = '' OR campaign_id = $1 GROUP BY 1, 2) r USING (campaign_id, sku_id)
   LEFT JOIN (SELECT campaign_id, sku_id, -sum(delta_confirmed) FILTER (WHERE action = 'RESTOCK') AS units, count(*) FILTER (WHERE action = 'REVERSAL') AS reversals
     FROM ledger GROUP BY 1, 2) b USING (campaign_id, sku_id)
 WHERE ($1 = '' OR s.campaign_id = $1) AND (s.reserved <> coalesce(r.reserved, 0) OR s.confirmed + coalesce(b.units, 0) <> coalesce(r.confirmed, 0))
   AND coalesce(b.reversals, 0) = 0 LIMIT $2) -- a person has moved units of a reservation
UNION ALL
(SELECT 'I2', s.campaign_id, s.sku_id, format('%s FREE token rows, available %s; %s BOUND, reserved %s; %s SOLD, confirmed %s', coalesce(t.free, 0), s.available,
   coalesce(t.bound, 0), s.reserved, coalesce(t.sold, 0), s.confirmed)
 FROM cellquota.v_stock s LEFT JOIN tokens t USING (campaign_id, sku_id)
 WHERE ($1 = '' OR s.campaign_id = $1) AND (t.free IS NOT NULL OR s.campaign_id || '/' || s.sku_id = ANY($3::text[]))
   AND (coalesce(t.free, 0), coalesce(t.bound, 0), coalesce(t.sold, 0)) IS DISTINCT FROM (s.available::bigint, s.reserved::bigint, s.confirmed::bigint) LIMIT $2)
UNION ALL
(SELECT 'I2', r.campaign_id, r.sku_id, format('reservation %s of %s units is %s and holds %s BOUND and %s SOLD token rows', r.reservation_id, r.quantity, r.state, coalesce(h.bound, 0), coalesce(h.sold, 0))
 FROM cellquota.v_reservations r LEFT JOIN held h USING (reservation_id)
 WHERE ($1 = '' OR r.campaign_id = $1) AND (h.bound IS NOT NULL OR r.campaign_id || '/' || r.sku_id = ANY($3::text[]))
   AND CASE WHEN r.state IN ('RESERVED', 'MANUAL_REVIEW') THEN (coalesce(h.bound, 0), coalesce(h.sold, 0)) IS DISTINCT FROM (r.quantity::bigint, 0::bigint)
            WHEN r.state = 'RELEASED' THEN coalesce(h.bound, 0) + coalesce(h.sold, 0) > 0
            ELSE coalesce(h.bound, 0) > 0 OR coalesce(h.sold, 0) > r.quantity END LIMIT $2) -- a refund may have put SOLD ones back
UNION ALL
(SELECT 'I5', t.campaign_id, t.sku_id, format('%s SEALED token rows; by the ledger %s units have left', t.sealed, coalesce(p.units, 0))
 FROM tokens t LEFT JOIN parted p USING (campaign_id, sku_id) WHERE t.sealed IS DISTINCT FROM coalesce(p.units, 0)::bigint LIMIT $2)
UNION ALL
(SELECT 'I5', campaign_id, sku_id, format('entry %s starts at %s/%s/%s, the one before ended at %s/%s/%s', entry_id,
   before_available, before_reserved, before_confirmed, was_available, was_reserved, was_confirmed)
 FROM ledger WHERE (before_available, before_reserved, before_confirmed) IS DISTINCT FROM (was_available, was_reserved, was_confirmed) LIMIT $2)
UNION ALL
(SELECT 'I5', s.campaign_id, s.sku_id, format('replayed ledger %s/%s/%s, stock row %s/%s/%s', coalesce(l.available, 0), coalesce(l.reserved, 0), coalesce(l.confirmed, 0), s.available, s.reserved, s.confirmed)
 FROM cellquota.v_stock s LEFT JOIN sums l USING (campaign_id, sku_id)
 WHERE ($1 = '' OR s.campaign_id = $1) AND (s.available, s.reserved, s.confirmed) IS DISTINCT FROM (coalesce(l.available, 0), coalesce(l.reserved, 0), coalesce(l.confirmed, 0)) LIMIT $2)
UNION ALL
(SELECT 'I5', coalesce(p.campaign_id, ''), '', format('table %s of the ledger lets %s through', c.relname, CASE WHEN t.updates THEN 'TRUNCATE' ELSE 'UPDATE and DELETE' END)
 FROM pg_class c LEFT JOIN cellquota.v_ledger_parts p ON p.part = c.relname AND ($1 = '' OR p.campaign_id = $1)
   CROSS JOIN LATERAL (SELECT coalesce(bool_or(g.tgtype & 24 = 24 AND g.tgtype & 2 = 2), false) AS updates, coalesce(bool_or(g.tgtype & 32 = 32), false) AS truncates
     FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgenabled IN ('O', 'A')) t
 WHERE (c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'cellquota.ledger'::regclass) OR c.oid = to_regclass('cellquota.ledger_archive')) AND NOT (t.updates AND t.truncates) AND ($1 = '' OR p.campaign_id IS NOT NULL OR c.relname = 'ledger_archive') LIMIT $2)
UNION ALL
(SELECT 'I6', i.campaign_id, i.sku_id, format('message %s of request %s is %s, and reservation %s is %s, its order %s', i.event_id, i.request_id, i.outcome, i.reservation_id,
   coalesce(r.state, 'missing'), coalesce(o.order_id, 'missing'))
 FROM cellquota.v_inbox i LEFT JOIN cellquota.v_reservations r USING (reservation_id) LEFT JOIN cellquota.v_orders o USING (reservation_id)
 WHERE ($1 = '' OR i.campaign_id = $1) AND i.outcome = 'ORDERED' AND (r.reservation_id IS NULL OR o.order_id IS NULL) LIMIT $2)
UNION ALL
(SELECT 'I7', campaign_id, sku_id, format('reservation %s: %s RESERVE, %s CONFIRM, %s RELEASE', business_no, reserves, confirms, releases)
 FROM acts WHERE reserves <> 1 OR confirms + releases > 1 LIMIT $2)
UNION ALL
(SELECT 'I7', r.campaign_id, r.sku_id, format('reservation %s is %s; the ledger has %s RESERVE, %s CONFIRM, %s RELEASE', r.reservation_id, r.state, coalesce(a.reserves, 0), coalesce(a.confirms, 0), coalesce(a.releases, 0))
 FROM cellquota.v_reservations r LEFT JOIN acts a ON a.business_no = r.reservation_id AND a.campaign_id = r.campaign_id AND a.sku_id = r.sku_id
 WHERE ($1 = '' OR r.campaign_id = $1) AND (coalesce(a.reserves, 0), coalesce(a.confirms, 0), coalesce(a.releases, 0)) IS DISTINCT FROM
   (1::bigint, CASE WHEN r.state = 'CONFIRMED' THEN 1 ELSE 0 END::bigint, CASE WHEN r.state = 'RELEASED' THEN 1 ELSE 0 END::bigint) LIMIT $2)
UNION ALL
(SELECT 'I7', o.campaign_id, o.sku_id, format('order %s is %s, its reservation %s', o.order_id, o.state, coalesce(r.state, 'missing'))
 FROM cellquota.v_orders o LEFT JOIN cellquota.v_reservations r USING (reservation_id)
 WHERE ($1 = '' OR o.campaign_id = $1) AND NOT coalesce((o.state, r.state) IN (('PENDING_PAYMENT', 'RESERVED'), ('PENDING_PAYMENT', 'MANUAL_REVIEW'), ('PAID', 'CONFIRMED'), ('CLOSED', 'RELEASED')), false) LIMIT $2)
UNION ALL
(SELECT 'I8', w.campaign_id, w.sku_id, format('entry %s was written under fence version %s after version %s was installed', w.entry_id, w.fence_version, h.fence_version)
 FROM cellquota.v_ledger_writers w JOIN cellquota.v_fence_history h ON w.created_at > h.at AND w.fence_version < h.fence_version
 WHERE $1 = '' OR w.campaign_id = $1 LIMIT $2);
