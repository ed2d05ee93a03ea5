-- What a SKU's ledger grew by since entry $3, with the order that a RESERVE made. Entries of one SKU
-- are written under its stock row's lock, so their ids are in the order of their commits.
SELECT w.entry_id, l.action, l.business_no, l.before_available, l.before_reserved, l.before_confirmed,
       l.after_available, l.after_reserved, l.after_confirmed, w.fence_version, w.created_at, coalesce(o.user_id, ''), coalesce(o.order_id, '')
FROM cellquota.v_ledger l JOIN cellquota.v_ledger_writers w USING (entry_id)
LEFT JOIN cellquota.v_orders o ON l.action = 'RESERVE' AND o.reservation_id = l.business_no
WHERE l.campaign_id = $1 AND l.sku_id = $2 AND l.entry_id > $3
ORDER BY w.entry_id LIMIT $4;
