-- Every stock row of campaign $1 with what its ledger adds up to, and what the ledger says became of the
-- units that were sold: confirmed is those of PAID orders, less what RESTOCK and REVERSAL took back.
WITH l AS (
  SELECT sku_id, sum(delta_available)::bigint AS available, sum(delta_reserved)::bigint AS reserved, sum(delta_confirmed)::bigint AS confirmed,
    -coalesce(sum(delta_confirmed) FILTER (WHERE action IN ('RESTOCK', 'REVERSAL')), 0)::bigint AS taken_back,
    count(*) FILTER (WHERE action = 'REVERSAL') AS reversals, count(*) AS entries
  FROM cellquota.v_ledger WHERE campaign_id = $1 GROUP BY 1
)
SELECT s.sku_id, s.granted, s.available, s.reserved, s.confirmed, s.released, coalesce(l.available, 0), coalesce(l.reserved, 0), coalesce(l.confirmed, 0),
  coalesce(l.taken_back, 0), coalesce(l.reversals, 0), coalesce(l.entries, 0)
FROM cellquota.v_stock s LEFT JOIN l USING (sku_id) WHERE s.campaign_id = $1 ORDER BY 1;
