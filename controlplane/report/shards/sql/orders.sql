-- In the order of the key over which I4 is judged: $1 campaign, $2 true when the scope is the SKU.
SELECT user_id, CASE WHEN $2 THEN sku_id ELSE '*' END AS scope, order_id, reservation_id, state, quantity
FROM cellquota.v_orders WHERE campaign_id = $1
ORDER BY user_id, scope, order_id;
