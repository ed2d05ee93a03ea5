-- Numbered adjustments of one SKU, in the order of their ids; a page after $3.
SELECT adjustment_id, fence_version, number, kind, asked, outcome
FROM cellquota.adjustments
WHERE campaign_id = $1 AND sku_id = $2 AND number IS NOT NULL AND adjustment_id > $3
ORDER BY adjustment_id LIMIT $4;
