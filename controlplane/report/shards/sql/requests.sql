-- What the shard knows of requests; keys as parallel arrays.
SELECT k.n, coalesce(i.reservation_id, r.reservation_id), coalesce(i.outcome, ''), coalesce(i.reason, ''), coalesce(o.order_id, ''), coalesce(o.state, ''),
       coalesce(i.fence_version, r.fence_version), coalesce(i.quantity, r.quantity)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS k(campaign_id, sku_id, user_id, request_id, n)
LEFT JOIN cellquota.v_inbox i USING (campaign_id, sku_id, user_id, request_id)
LEFT JOIN cellquota.v_reservations r ON r.campaign_id = k.campaign_id AND r.sku_id = k.sku_id AND r.user_id = k.user_id AND r.request_id = k.request_id
  AND (i.reservation_id IS NULL OR i.reservation_id = r.reservation_id)
LEFT JOIN cellquota.v_orders o ON o.reservation_id = r.reservation_id
WHERE i.event_id IS NOT NULL OR r.reservation_id IS NOT NULL
ORDER BY k.n, 2;
