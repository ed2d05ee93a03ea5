SELECT campaign_id, sku_id, granted, available, reserved, confirmed, released, version,
       adjustment_version, last_number, last_adjustment_id, book_record_id
FROM cellquota.stock ORDER BY campaign_id, sku_id;
