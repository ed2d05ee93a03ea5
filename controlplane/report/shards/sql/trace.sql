-- Every fact about reservations that match: $1 kind (request, reservation, order), $2 id, $3 campaign,
-- $4 SKU, $5 user; empty filters match all.
WITH r AS (
  SELECT reservation_id FROM cellquota.v_inbox WHERE (($1 = 'request' AND request_id = $2) OR ($1 = 'reservation' AND reservation_id = $2))
    AND ($3 = '' OR campaign_id = $3) AND ($4 = '' OR sku_id = $4) AND ($5 = '' OR user_id = $5)
  UNION SELECT reservation_id FROM cellquota.v_orders WHERE (($1 = 'request' AND request_id = $2) OR ($1 = 'reservation' AND reservation_id = $2) OR ($1 = 'order' AND order_id = $2))
    AND ($3 = '' OR campaign_id = $3) AND ($4 = '' OR sku_id = $4) AND ($5 = '' OR user_id = $5)
  LIMIT 100
)
SELECT * FROM (
  SELECT received_at AS at, 'inbox' AS store, outcome || CASE WHEN reason = '' THEN '' ELSE '/' || reason END AS what,
    jsonb_build_object('event_id', event_id, 'reservation_id', reservation_id, 'request_id', request_id, 'campaign_id', campaign_id, 'sku_id', sku_id, 'user_id', user_id,
      'quantity', quantity, 'topic', topic, 'partition', partition, 'offset', kafka_offset, 'fence_version', fence_version, 'build_id', build_id) AS fields
  FROM cellquota.v_inbox JOIN r USING (reservation_id)
  UNION ALL SELECT created_at, 'reservation', state, jsonb_build_object('reservation_id', reservation_id, 'request_id', request_id, 'campaign_id', campaign_id, 'sku_id', sku_id, 'user_id', user_id,
      'quantity', quantity, 'reason', reason, 'fence_version', fence_version, 'expires_at', expires_at) FROM cellquota.v_reservations JOIN r USING (reservation_id)
  UNION ALL SELECT coalesce(paid_at, closed_at, created_at), 'order', state, jsonb_build_object('order_id', order_id, 'reservation_id', reservation_id, 'amount', amount, 'currency', currency,
      'version', version, 'created_at', created_at) FROM cellquota.v_orders JOIN r USING (reservation_id)
  UNION ALL SELECT created_at, 'ledger', action, jsonb_build_object('entry_id', entry_id, 'business_no', business_no, 'available', before_available || ' -> ' || after_available,
      'reserved', before_reserved || ' -> ' || after_reserved, 'confirmed', before_confirmed || ' -> ' || after_confirmed, 'source', source, 'actor', actor)
    FROM cellquota.v_ledger JOIN r ON business_no = r.reservation_id
  UNION ALL SELECT p.updated_at, 'payment', p.state, jsonb_build_object('payment_id', p.payment_id, 'order_id', p.order_id, 'amount', p.amount, 'currency', p.currency,
      'refund_id', p.refund_id, 'created_at', p.created_at) FROM cellquota.v_payments p JOIN cellquota.v_orders o USING (order_id) JOIN r ON r.reservation_id = o.reservation_id
  UNION ALL SELECT coalesce(published_at, created_at), 'outbox', event_type || ' ' || state, jsonb_build_object('outbox_id', outbox_id, 'aggregate', aggregate, 'attempts', attempts, 'created_at', created_at)
    FROM cellquota.v_outbox JOIN r ON aggregate = 'req/' || r.reservation_id
) facts ORDER BY at, store LIMIT 1000;
