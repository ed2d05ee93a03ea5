-- Findings, oldest first: $1 campaign, $2 SKU ('': all), $3 states, $4 after this row of the order (found_at in microseconds, id), $6 at most.
SELECT d.finding_id, d.kind, d.campaign_id, d.sku_id, d.request_id, d.event_id, d.reservation_id, d.order_id, d.units, d.age_seconds, d.state, d.action,
  d.detail, d.owner, d.tries, coalesce(d.entry_id, 0), (extract(epoch FROM d.found_at) * 1000000)::bigint
FROM cellquota.v_finding_details d
WHERE ($1 = '' OR d.campaign_id = $1) AND ($2 = '' OR d.sku_id = $2) AND d.state = ANY($3::text[])
  AND ((extract(epoch FROM d.found_at) * 1000000)::bigint, d.finding_id) > ($4::bigint, $5::text)
ORDER BY d.found_at, d.finding_id LIMIT $6;
