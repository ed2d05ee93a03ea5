-- A page of a SKU's entries after $3, in the order in which they are drawn from.
SELECT entry_id, tickets FROM cellquota.entries WHERE campaign_id = $1 AND sku_id = $2 AND entry_id > $3 ORDER BY entry_id LIMIT $4;
