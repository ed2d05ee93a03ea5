-- The orders of campaign $1 by state, with units and money.
SELECT sku_id, state, currency, count(*), sum(quantity)::bigint, sum(amount)::text
FROM cellquota.v_orders WHERE campaign_id = $1 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
