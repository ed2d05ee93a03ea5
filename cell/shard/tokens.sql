-- SKUs in TOKEN mode. Their rows are moved by the ledger itself (migration 3); here they are only counted.

-- How many free rows there are, at most as many as are needed; SKUs of counters have no row in the answer.
-- After the stock rows were locked: nobody moves a row without that lock.
-- name: tokens_free
SELECT k.campaign_id, k.sku_id, (SELECT count(*) FROM (SELECT FROM cellquota.tokens t
  WHERE t.campaign_id = k.campaign_id AND t.sku_id = k.sku_id AND t.state = 'FREE' LIMIT k.need) f)::int
FROM unnest($1::text[], $2::text[], $3::int[]) AS k(campaign_id, sku_id, need)
JOIN cellquota.skus s ON s.campaign_id = k.campaign_id AND s.sku_id = k.sku_id AND s.inventory_mode = 'TOKEN';

-- Units are available and have no free row: one finding per SKU until somebody has repaired it.
-- name: tokens_missing
INSERT INTO cellquota.findings AS f (finding_id, kind, campaign_id, sku_id, units, state, found_at)
SELECT 'tokens.free.' || campaign_id || '.' || sku_id, 'QUANTITY_MISMATCH', campaign_id, sku_id, units, 'OPEN', cellquota.now()
FROM unnest($1::text[], $2::text[], $3::int[]) AS e(campaign_id, sku_id, units)
ON CONFLICT (finding_id) DO UPDATE SET state = 'OPEN', units = excluded.units, found_at = excluded.found_at WHERE f.state = 'REPAIRED';

-- name: tokens_known
SELECT to_regclass('cellquota.ledger_parts') IS NOT NULL;
