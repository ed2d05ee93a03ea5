-- The payment attempts of an order; $1 its id.
SELECT payment_id, amount::text, currency, state, coalesce(refund_id, ''), created_at, updated_at
FROM cellquota.v_payments WHERE order_id = $1 ORDER BY created_at, payment_id LIMIT 1000;
