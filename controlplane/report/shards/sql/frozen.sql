-- SKUs whose units nothing moves by itself.
SELECT campaign_id, sku_id, finding_id, findings FROM cellquota.v_frozen_skus ORDER BY campaign_id, sku_id;
