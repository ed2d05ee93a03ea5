-- Every SKU of campaign $1 with what its unsold units are: under review (a reservation, or a parked
-- message, that a person has to look at), and available again since the sale ended at $2.
WITH review AS (
  SELECT sku_id, sum(quantity)::bigint AS units FROM cellquota.v_reservations WHERE campaign_id = $1 AND state = 'MANUAL_REVIEW' GROUP BY 1
), parked AS (
  SELECT sku_id, sum(quantity)::bigint AS units FROM cellquota.v_inbox i WHERE campaign_id = $1 AND outcome = 'PARKED'
    AND NOT EXISTS (SELECT FROM cellquota.v_findings f WHERE f.event_id = i.event_id AND f.state = 'REPAIRED') GROUP BY 1
), released AS (
  SELECT sku_id, sum(delta_available)::bigint AS units FROM cellquota.v_ledger
  WHERE campaign_id = $1 AND action IN ('RELEASE', 'RESTOCK') AND created_at >= $2 GROUP BY 1
)
SELECT s.sku_id, s.granted, s.available, s.reserved, s.confirmed, coalesce(v.units, 0), coalesce(p.units, 0), coalesce(r.units, 0)
FROM cellquota.v_stock s LEFT JOIN review v USING (sku_id) LEFT JOIN parked p USING (sku_id) LEFT JOIN released r USING (sku_id)
WHERE s.campaign_id = $1 ORDER BY s.sku_id;
