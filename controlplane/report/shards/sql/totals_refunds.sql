-- The refunds of campaign $1 by state and cause, with money and how many put their units back on sale.
SELECT o.sku_id, f.state, f.cause, f.currency, count(*), count(*) FILTER (WHERE f.restocked), sum(f.amount)::text
FROM cellquota.v_refunds f JOIN cellquota.v_orders o USING (order_id) WHERE o.campaign_id = $1 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
