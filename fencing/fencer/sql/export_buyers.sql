-- A page of places, own and carried, after the key ($2, $3); whose bucket it is, is told by the user.
SELECT b.scope_key, b.user_id, b.reservation_id, coalesce(r.sku_id, c.sku_id, ''), coalesce(r.request_id, c.request_id, '')
FROM cellquota.buyers b
LEFT JOIN cellquota.reservations r ON r.reservation_id = b.reservation_id
LEFT JOIN cellquota.carried_requests c ON c.reservation_id = b.reservation_id
WHERE b.campaign_id = $1 AND (b.scope_key, b.user_id) > ($2, $3)
ORDER BY b.scope_key, b.user_id LIMIT $4;
