-- The units of parked admissions by the build that admitted them: a mirror of that build has taken them, and in
-- the shard they are available. $1 campaign, or '' for all. A finding that repaired one has given them back. A row
-- without a campaign counts parked messages that have no inbox row: nobody knows whose unit they hold.
SELECT campaign_id, sku_id, build_id, sum(quantity)::bigint FROM cellquota.v_inbox i
WHERE outcome = 'PARKED' AND ($1 = '' OR campaign_id = $1)
  AND NOT EXISTS (SELECT FROM cellquota.v_findings f WHERE f.event_id = i.event_id AND f.state = 'REPAIRED')
GROUP BY 1, 2, 3
UNION ALL SELECT '', '', '', count(*) FROM cellquota.v_parked p WHERE NOT EXISTS (SELECT FROM cellquota.v_inbox i
  WHERE i.topic = p.topic AND i.partition = p.partition AND i.kafka_offset = p.kafka_offset);
