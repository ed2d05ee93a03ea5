-- One finding with its scene; $1 its id.
SELECT d.finding_id, d.kind, d.campaign_id, d.sku_id, d.request_id, d.event_id, d.reservation_id, d.order_id, d.units, d.age_seconds, d.state, d.action,
  d.detail, d.owner, d.tries, coalesce(d.entry_id, 0), (extract(epoch FROM d.found_at) * 1000000)::bigint, coalesce(d.snapshot::text, '')
FROM cellquota.v_finding_details d WHERE d.finding_id = $1;
