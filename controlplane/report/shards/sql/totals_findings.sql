-- The findings of campaign $1 by kind, state and what repaired them.
SELECT sku_id, kind, state, action, count(*), sum(units)::bigint
FROM cellquota.v_findings WHERE campaign_id = $1 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
