SELECT s.campaign_id, s.sku_id, s.granted, s.available, s.reserved, s.confirmed, s.released, s.version,
       a.adjustment_version, a.last_number, a.last_adjustment_id, a.book_record_id
FROM cellquota.v_stock s JOIN cellquota.v_stock_adjustments a USING (campaign_id, sku_id)
WHERE $1 = '' OR s.campaign_id = $1
ORDER BY s.campaign_id, s.sku_id;
