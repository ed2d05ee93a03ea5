-- Refunds: read with their orders, written with the payment they belong to, asked of the channel.

-- Those of the orders, and any other order's that has one of the ids.
-- name: step_refunds
SELECT refund_id, order_id, payment_id, cellquota.amount_text(amount), currency, state, cause, part FROM cellquota.refunds
WHERE order_id = ANY($1::text[])
UNION ALL
SELECT refund_id, order_id, payment_id, cellquota.amount_text(amount), currency, state, cause, part FROM cellquota.refunds
WHERE refund_id = ANY($2::text[]) AND order_id <> ALL($1::text[])
ORDER BY 2, 1;

-- A new one, the end of one that was asked for, or less to ask for (the channel gave a part back). Ended ones
-- are never changed.
-- name: step_refunds_write
INSERT INTO cellquota.refunds AS f (refund_id, order_id, payment_id, amount, currency, part, cause, actor, reason, state, restocked,
  next_ask_at, requested_at, refunded_at)
SELECT refund_id, order_id, payment_id, amount::numeric, currency, part, cause, actor, reason, state, restocked,
  CASE state WHEN 'PENDING' THEN cellquota.now() END, cellquota.now(), CASE state WHEN 'REFUNDED' THEN cellquota.now() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bool[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bool[])
  AS e(refund_id, order_id, payment_id, amount, currency, part, cause, actor, reason, state, restocked)
ON CONFLICT (refund_id) DO UPDATE SET state = excluded.state, amount = excluded.amount, part = excluded.part, restocked = excluded.restocked,
  next_ask_at = excluded.next_ask_at, refunded_at = excluded.refunded_at
WHERE f.order_id = excluded.order_id AND f.payment_id = excluded.payment_id AND f.state = 'PENDING'
  AND (excluded.state = 'REFUNDED' OR excluded.amount < f.amount);

-- name: refunds_kick
UPDATE cellquota.refunds SET next_ask_at = cellquota.now() WHERE refund_id = ANY($1::text[]) AND state <> 'REFUNDED';

-- Did one of these refunds return its units already?
-- name: restocked_before
SELECT EXISTS (SELECT FROM cellquota.ledger l JOIN unnest($3::text[]) AS e(refund_id) ON l.idempotency_key = 'RESTOCK:' || e.refund_id || ':1'
  WHERE l.campaign_id = $1 AND l.sku_id = $2);

-- What an older program left: the payment says that its money goes back, and no row asks for it. Why is in
-- its state, and in the id that a cancelled campaign's sweep derives (refund.CancelledRefundID).
-- name: refunds_adopt
INSERT INTO cellquota.refunds (refund_id, order_id, payment_id, amount, currency, cause, reason, state, next_ask_at, requested_at)
SELECT p.refund_id, p.order_id, p.payment_id, p.amount, p.currency,
  CASE WHEN o.state = 'CLOSED' THEN 'PAID_AFTER_CLOSE' WHEN p.state = 'PAID_AFTER_CLOSE' THEN 'DUPLICATE_PAYMENT'
       WHEN p.refund_id = 'cancel-' || p.order_id THEN 'CAMPAIGN_CANCELLED' ELSE 'REQUESTED' END,
  'found with its payment', 'PENDING', cellquota.now(), p.updated_at
FROM cellquota.payments p JOIN cellquota.orders o ON o.order_id = p.order_id
WHERE p.state IN ('PAID_AFTER_CLOSE', 'REFUND_PENDING') AND p.refund_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM cellquota.refunds f WHERE f.refund_id = p.refund_id)
ORDER BY p.updated_at LIMIT $1 ON CONFLICT DO NOTHING;

-- Claims due refunds by setting when they are due again: $2 seconds, doubled with every ask, at most
-- $3. Whoever dies behind a claim loses nothing: the refund is due again.
-- name: refunds_claim
WITH c AS MATERIALIZED (
  SELECT refund_id FROM cellquota.refunds WHERE state = 'PENDING' AND next_ask_at <= (SELECT cellquota.now())
  ORDER BY next_ask_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE cellquota.refunds f SET asks = f.asks + 1,
  next_ask_at = cellquota.now() + make_interval(secs => least($3::float8, $2::float8 * power(2, least(f.asks, 30))))
FROM c WHERE f.refund_id = c.refund_id
RETURNING f.refund_id, f.order_id, f.payment_id, cellquota.amount_text(f.amount), f.currency, f.asks,
  extract(epoch FROM cellquota.now() - f.requested_at)::float8;

-- name: refunds_answer
UPDATE cellquota.refunds f SET answer = e.answer FROM unnest($1::text[], $2::text[]) AS e(refund_id, answer)
WHERE f.refund_id = e.refund_id AND f.state <> 'REFUNDED';

-- name: refunds_backlog
SELECT count(*), coalesce(extract(epoch FROM cellquota.now() - min(requested_at)), 0)::float8 FROM cellquota.refunds WHERE state = 'PENDING';

-- A page of a campaign's paid orders, in the order of their payment.
-- name: paid_of_campaign
SELECT order_id, paid_at FROM cellquota.orders
WHERE campaign_id = $1 AND state = 'PAID' AND (paid_at, order_id) > ($2::timestamptz, $3::text) ORDER BY paid_at, order_id LIMIT $4;
