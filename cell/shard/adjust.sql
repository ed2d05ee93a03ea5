-- Numbered adjustments.

-- name: adjustment_by_id
SELECT campaign_id, sku_id, fence_version, coalesce(number, 0), kind, units, asked, outcome
FROM cellquota.adjustments WHERE adjustment_id = $1;

-- name: adjustment_insert
INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, cellquota.now());

-- name: adjustment_number
UPDATE cellquota.stock SET adjustment_version = $3, last_number = $4, last_adjustment_id = $5,
  book_record_id = CASE WHEN $6::text = '' THEN book_record_id ELSE $6::text END, updated_at = cellquota.now()
WHERE campaign_id = $1 AND sku_id = $2
RETURNING campaign_id, sku_id, granted, available, reserved, confirmed, released, version,
  adjustment_version, last_number, last_adjustment_id, book_record_id;

-- name: book_record
UPDATE cellquota.stock SET book_record_id = $3, updated_at = cellquota.now() WHERE campaign_id = $1 AND sku_id = $2;
