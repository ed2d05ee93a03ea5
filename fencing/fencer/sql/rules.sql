SELECT campaign_id, version, rules FROM cellquota.campaigns ORDER BY campaign_id;
