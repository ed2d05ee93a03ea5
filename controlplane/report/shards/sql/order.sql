-- One order with its reservation; $1 its id.
SELECT o.order_id, o.reservation_id, o.request_id, o.campaign_id, o.sku_id, o.user_id, o.quantity, o.amount::text, o.currency, o.state, o.version,
  o.created_at, r.expires_at, o.paid_at, o.closed_at, r.state, r.reason
FROM cellquota.v_orders o JOIN cellquota.v_reservations r ON r.reservation_id = o.reservation_id
WHERE o.order_id = $1;
