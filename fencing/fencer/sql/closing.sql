SELECT ranges FROM cellquota.bucket_closings
WHERE campaign_id = $1 AND domain = $2 AND bucket_from = $3 AND bucket_to = $4 AND route_version = $5;
