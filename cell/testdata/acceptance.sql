-- The four acceptance checks of the database (R-294), as cellquota_reader may run them on any shard at any
-- time: psql "$DSN" -f acceptance.sql. Each statement returns no row. In the words of their source:
-- activity is campaign_id, CANCELING and CANCELED are CLOSED, inventory_token_id is token_id.

-- 1: one user, one order. Two orders of one user for one SKU of a campaign.
SELECT campaign_id, sku_id, user_id, count(*)
FROM cellquota.v_orders
GROUP BY campaign_id, sku_id, user_id
HAVING count(*) > 1;

-- 2: a token that is bound to more than one reservation; the order that its row names counts as one, so
-- that a row which names one buyer's reservation and another's order is found too.
SELECT token_id, count(DISTINCT reservation_id)
FROM (
  SELECT token_id, reservation_id FROM cellquota.v_tokens WHERE reservation_id IS NOT NULL
  UNION ALL
  SELECT t.token_id, o.reservation_id FROM cellquota.v_tokens t JOIN cellquota.v_orders o USING (order_id)
) bound
GROUP BY token_id
HAVING count(DISTINCT reservation_id) > 1;

-- 3: a reservation with more than one order.
SELECT reservation_id, count(*)
FROM cellquota.v_orders
GROUP BY reservation_id
HAVING count(*) > 1;

-- 4: a paid order that was closed: by its own times, by the ledger (a unit that was both confirmed and
-- released), and by its payments (money that came after the close and is not on its way back).
SELECT order_id
FROM cellquota.v_orders
WHERE paid_at IS NOT NULL AND (state = 'CLOSED' OR closed_at IS NOT NULL)
UNION
SELECT o.order_id
FROM cellquota.v_orders o
JOIN cellquota.v_ledger c ON c.business_no = o.reservation_id AND c.action = 'CONFIRM'
JOIN cellquota.v_ledger r ON r.business_no = o.reservation_id AND r.action = 'RELEASE'
UNION
SELECT o.order_id
FROM cellquota.v_orders o JOIN cellquota.v_payments p USING (order_id)
WHERE o.state = 'CLOSED' AND (p.state = 'SUCCEEDED' OR p.state = 'PAID_AFTER_CLOSE' AND p.refund_id IS NULL);
