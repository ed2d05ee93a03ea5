SELECT campaign_id, max(moved_version) FROM cellquota.buckets GROUP BY campaign_id;
