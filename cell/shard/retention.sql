-- What settled campaigns leave (retention).

-- name: retention_known
SELECT to_regclass('cellquota.archives') IS NOT NULL;

-- Campaigns that are settled here for $1 seconds and are not archived, or have inbox rows older than $2 seconds.
-- name: retention_due
SELECT c.campaign_id, a.archived_at IS NOT NULL FROM cellquota.campaigns c LEFT JOIN cellquota.archives a USING (campaign_id)
WHERE c.state = 'SETTLED' AND c.updated_at <= cellquota.now() - make_interval(secs => $1::float8)
  AND (a.archived_at IS NULL OR EXISTS (SELECT FROM cellquota.inbox i WHERE i.campaign_id = c.campaign_id AND i.outcome <> 'PARKED'
    AND i.received_at < cellquota.now() - make_interval(secs => $2::float8)))
ORDER BY c.updated_at, c.campaign_id LIMIT $3;

-- name: retention_archive
SELECT cellquota.archive_step($1, $2, $3);

-- Inbox rows of an archived campaign whose message is older than anything that can be replayed. One that is
-- parked stays: a person looks at it.
-- name: retention_inbox
WITH gone AS (
  DELETE FROM cellquota.inbox WHERE event_id IN (SELECT i.event_id FROM cellquota.inbox i
    WHERE i.campaign_id = $1 AND i.outcome <> 'PARKED' AND i.received_at < cellquota.now() - make_interval(secs => $2::float8)
      AND EXISTS (SELECT FROM cellquota.archives a WHERE a.campaign_id = $1 AND a.archived_at IS NOT NULL)
    LIMIT $3 FOR UPDATE SKIP LOCKED)
  RETURNING 1)
SELECT count(*) FROM gone;

-- name: retention_parts
SELECT count(*) FROM pg_inherits WHERE inhparent = 'cellquota.ledger'::regclass;
