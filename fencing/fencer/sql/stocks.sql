SELECT campaign_id, sku_id, granted, available, reserved, confirmed FROM cellquota.stock ORDER BY campaign_id, sku_id;
