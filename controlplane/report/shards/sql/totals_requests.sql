-- How the requests of campaign $1 ended, as the inbox has them.
SELECT sku_id, outcome, reason, count(*), sum(quantity)::bigint
FROM cellquota.v_inbox WHERE campaign_id = $1 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
