-- The refunds of an order; $1 its id.
SELECT refund_id, payment_id, amount::text, currency, part, cause, actor, reason, state, restocked, asks, answer, requested_at, refunded_at
FROM cellquota.v_refunds WHERE order_id = $1 ORDER BY requested_at, refund_id LIMIT 1000;
