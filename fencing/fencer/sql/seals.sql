-- What each fence sealed, where it was anything.
SELECT campaign_id, sku_id, sealed_by, units FROM cellquota.adjustments WHERE kind = 'SEAL' AND units > 0
ORDER BY campaign_id, sku_id, sealed_by;
