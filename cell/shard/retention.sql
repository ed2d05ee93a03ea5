-- What settled campaigns leave (retention).

-- name: retention_known
SELECT to_regclass('cellquota.archives') IS NOT NULL;

-- Campaigns that are settled here for $1 seconds and are not archived, or for $2 seconds and not pruned.
-- What is told by a row per campaign: the inbox itself is read by the walk below, once it is due.
-- name: retention_due
SELECT c.campaign_id, a.archived_at IS NOT NULL FROM cellquota.campaigns c LEFT JOIN cellquota.archives a USING (campaign_id)
WHERE c.state = 'SETTLED' AND c.updated_at <= cellquota.now() - make_interval(secs => $1::float8)
  AND (a.archived_at IS NULL OR a.pruned_at IS NULL AND c.updated_at < cellquota.now() - make_interval(secs => $2::float8))
ORDER BY c.updated_at, c.campaign_id LIMIT $3;

-- name: retention_archive
SELECT cellquota.archive_step($1, $2, $3);

-- One process walks an archived campaign at a time; no row: another does, or it is not archived.
-- name: retention_inbox_claim
SELECT true FROM cellquota.archives WHERE campaign_id = $1 AND archived_at IS NOT NULL FOR UPDATE SKIP LOCKED;

-- One page of the walk over a campaign's inbox, after ($2, $3, $4): rows that cannot be replayed any more go, a
-- parked one stays, because a person looks at it. Rows of one request share a page. Answers what went, what is left to another walk, and the place after the page.
-- name: retention_inbox
WITH page AS MATERIALIZED (
  SELECT event_id, sku_id, user_id, request_id, outcome <> 'PARKED' AS decided, received_at < cellquota.now() - make_interval(secs => $5::float8) AS old
  FROM cellquota.inbox WHERE campaign_id = $1 AND (sku_id, user_id, request_id) > ($2, $3, $4)
  ORDER BY campaign_id, sku_id, user_id, request_id FETCH FIRST ($6::bigint) ROWS WITH TIES
), gone AS (
  DELETE FROM cellquota.inbox WHERE event_id = ANY (ARRAY(SELECT event_id FROM page WHERE decided AND old)) AND outcome <> 'PARKED' RETURNING 1
), place AS (
  SELECT sku_id, user_id, request_id FROM page ORDER BY sku_id DESC, user_id DESC, request_id DESC LIMIT 1
)
SELECT (SELECT count(*) FROM gone), EXISTS (SELECT FROM page WHERE decided AND NOT old), (SELECT count(*) FROM page) >= $6,
  coalesce((SELECT sku_id FROM place), $2), coalesce((SELECT user_id FROM place), $3), coalesce((SELECT request_id FROM place), $4);

-- name: retention_inbox_done
UPDATE cellquota.archives SET pruned_at = cellquota.now() WHERE campaign_id = $1 AND pruned_at IS NULL;

-- name: retention_parts
SELECT count(*) FROM pg_inherits WHERE inhparent = 'cellquota.ledger'::regclass;
