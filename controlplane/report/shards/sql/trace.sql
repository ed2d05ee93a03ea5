-- Every fact about what an id names: $1 kind (request, reservation, order, payment, event, token, user,
-- adjustment, entry), $2 id, $3 campaign, $4 SKU, $5 user; empty filters match all, and narrow requests
-- and users only. First the reservations that it concerns (at most 100), then their facts, and those of
-- an id that may concern none.
WITH r AS MATERIALIZED (
  SELECT reservation_id FROM cellquota.v_inbox WHERE (($1 = 'request' AND request_id = $2) OR ($1 = 'reservation' AND reservation_id = $2) OR ($1 = 'event' AND event_id = $2) OR ($1 = 'user' AND user_id = $2))
    AND ($3 = '' OR campaign_id = $3) AND ($4 = '' OR sku_id = $4) AND ($5 = '' OR user_id = $5)
  UNION SELECT reservation_id FROM cellquota.v_orders WHERE (($1 = 'request' AND request_id = $2) OR ($1 = 'reservation' AND reservation_id = $2) OR ($1 = 'order' AND order_id = $2) OR ($1 = 'user' AND user_id = $2))
    AND ($3 = '' OR campaign_id = $3) AND ($4 = '' OR sku_id = $4) AND ($5 = '' OR user_id = $5)
  UNION SELECT o.reservation_id FROM cellquota.v_payments p JOIN cellquota.v_orders o USING (order_id) WHERE $1 = 'payment' AND (p.payment_id = $2 OR p.refund_id = $2)
  UNION SELECT o.reservation_id FROM cellquota.v_refunds f JOIN cellquota.v_orders o USING (order_id) WHERE $1 = 'payment' AND f.refund_id = $2
  UNION SELECT reservation_id FROM cellquota.v_tokens WHERE $1 = 'token' AND token_id = $2 AND reservation_id IS NOT NULL
  UNION SELECT business_no FROM cellquota.v_ledger WHERE $1 = 'entry' AND entry_id = CASE $1 WHEN 'entry' THEN $2::bigint END AND action IN ('RESERVE', 'CONFIRM', 'RELEASE')
  UNION SELECT substr(aggregate, 5) FROM cellquota.v_outbox WHERE $1 = 'event' AND outbox_id = substring($2 FROM '^outbox-.+-([0-9]+)$')::bigint AND aggregate LIKE 'req/%'
  LIMIT 100
), asked AS MATERIALIZED ( -- entries that the id names beside those of reservations: its own, an adjustment's, the grant that minted a token
  SELECT entry_id FROM cellquota.v_ledger WHERE ($1 = 'entry' AND entry_id = CASE $1 WHEN 'entry' THEN $2::bigint END) OR ($1 = 'adjustment' AND action IN ('GRANT', 'RETURN', 'SEAL') AND business_no = $2)
  UNION SELECT l.entry_id FROM cellquota.v_tokens t JOIN cellquota.v_ledger l ON l.campaign_id = t.campaign_id AND l.sku_id = t.sku_id AND l.action = 'GRANT'
    AND split_part(t.token_id, '.t', 2) LIKE left(encode(sha256(convert_to(l.campaign_id || '/' || l.sku_id || '/' || l.business_no, 'UTF8')), 'hex'), 20) || '-%'
    WHERE $1 = 'token' AND t.token_id = $2
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
  UNION ALL SELECT l.created_at, 'ledger', l.action, jsonb_build_object('entry_id', l.entry_id, 'campaign_id', l.campaign_id, 'sku_id', l.sku_id, 'business_no', l.business_no,
      'available', before_available || ' -> ' || after_available, 'reserved', before_reserved || ' -> ' || after_reserved, 'confirmed', before_confirmed || ' -> ' || after_confirmed, 'source', source, 'actor', actor)
    FROM cellquota.v_ledger l WHERE l.business_no IN (SELECT reservation_id FROM r) OR l.entry_id IN (SELECT entry_id FROM asked)
  UNION ALL SELECT p.updated_at, 'payment', p.state, jsonb_build_object('payment_id', p.payment_id, 'order_id', p.order_id, 'amount', p.amount, 'currency', p.currency,
      'refund_id', p.refund_id, 'created_at', p.created_at) FROM cellquota.v_payments p JOIN cellquota.v_orders o USING (order_id) JOIN r ON r.reservation_id = o.reservation_id
  UNION ALL SELECT coalesce(f.refunded_at, f.requested_at), 'refund', f.state, jsonb_build_object('refund_id', f.refund_id, 'order_id', f.order_id, 'payment_id', f.payment_id, 'amount', f.amount, 'currency', f.currency,
      'cause', f.cause, 'actor', f.actor, 'reason', f.reason, 'restocked', f.restocked, 'asks', f.asks, 'answer', f.answer, 'requested_at', f.requested_at)
    FROM cellquota.v_refunds f JOIN cellquota.v_orders o USING (order_id) JOIN r ON r.reservation_id = o.reservation_id
  -- a finding has an age, no time: when it was found, to the second
  UNION ALL SELECT cellquota.now() - make_interval(secs => age_seconds), 'finding', kind || ' ' || state, jsonb_build_object('finding_id', finding_id, 'campaign_id', campaign_id, 'sku_id', sku_id, 'event_id', event_id,
      'reservation_id', reservation_id, 'units', units, 'action', action)
    FROM cellquota.v_findings WHERE reservation_id IN (SELECT reservation_id FROM r) OR event_id IN (SELECT 'reserve-' || reservation_id FROM r)
  UNION ALL SELECT coalesce(published_at, created_at), 'outbox', event_type || ' ' || state, jsonb_build_object('outbox_id', outbox_id, 'aggregate', aggregate, 'attempts', attempts, 'created_at', created_at)
    FROM cellquota.v_outbox WHERE aggregate IN (SELECT 'req/' || reservation_id FROM r) OR ($1 = 'event' AND outbox_id = substring($2 FROM '^outbox-.+-([0-9]+)$')::bigint)
  UNION ALL SELECT applied_at, 'adjustment', kind || ' ' || outcome, jsonb_build_object('adjustment_id', adjustment_id, 'campaign_id', campaign_id, 'sku_id', sku_id, 'units', units,
      'number', number, 'fence_version', fence_version) FROM cellquota.v_adjustments WHERE $1 = 'adjustment' AND adjustment_id = $2
  -- a token row has no time of its own: it moves with its ledger entries, and the newest of those is when
  UNION ALL SELECT coalesce((SELECT max(w.created_at) FROM cellquota.v_ledger_writers w WHERE w.business_no = t.reservation_id OR w.entry_id IN (SELECT entry_id FROM asked)), cellquota.now()),
      'token', t.state, jsonb_build_object('token_id', t.token_id, 'campaign_id', t.campaign_id, 'sku_id', t.sku_id, 'reservation_id', t.reservation_id, 'order_id', t.order_id)
    FROM cellquota.v_tokens t WHERE t.reservation_id IN (SELECT reservation_id FROM r) OR ($1 = 'token' AND t.token_id = $2)
) facts ORDER BY at, store LIMIT 1000;
