-- What must leave the shard: effects for the mirror, events for the outside.

-- name: outbox_insert
INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, traceparent, created_at)
SELECT target, aggregate, event_type, campaign_id, sku_id, payload, traceparent, cellquota.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[])
  WITH ORDINALITY AS o(target, aggregate, event_type, campaign_id, sku_id, payload, traceparent, n) ORDER BY n;

-- Claims by state and lease, oldest first, never by "id greater than the last" (K13). A row waits
-- while an earlier pending one of its aggregate is not in the same claim. The candidates are
-- materialised, so that the lock is taken once and the second look sees the same set.
-- name: outbox_claim
WITH c AS MATERIALIZED (
  SELECT outbox_id, aggregate FROM cellquota.outbox
  WHERE target = $1 AND state = 'PENDING' AND (claimed_by = $3 OR claimed_until IS NULL OR claimed_until < cellquota.now())
  ORDER BY outbox_id LIMIT $2 FOR UPDATE SKIP LOCKED
), ok AS (
  SELECT c.outbox_id FROM c WHERE NOT EXISTS (
    SELECT FROM cellquota.outbox o WHERE o.target = $1 AND o.state NOT IN ('PUBLISHED', 'PARKED') AND o.aggregate = c.aggregate
      AND o.outbox_id < c.outbox_id AND o.outbox_id NOT IN (SELECT outbox_id FROM c))
), u AS (
  UPDATE cellquota.outbox o SET claimed_by = $3, claimed_until = cellquota.now() + make_interval(secs => $4::float8), attempts = attempts + 1
  FROM ok WHERE o.outbox_id = ok.outbox_id
  RETURNING o.outbox_id, o.aggregate, o.event_type, o.campaign_id, o.sku_id, o.payload, o.traceparent, o.attempts
)
SELECT u.outbox_id, u.aggregate, u.event_type, u.campaign_id, u.sku_id, u.payload, u.traceparent, u.attempts,
  coalesce(m.raised_fence, 0), coalesce(m.raised_count, 0), CASE p.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE u.sku_id END
FROM u LEFT JOIN cellquota.campaigns p ON p.campaign_id = u.campaign_id
  LEFT JOIN cellquota.mirrors m ON m.campaign_id = u.campaign_id
    AND m.scope_key = CASE p.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE u.sku_id END
ORDER BY u.outbox_id;

-- Rows that are named by their key are not said to be "state = 'PENDING'": a plan made while nothing is
-- pending would read all of the partial index of pending rows, for ever (TestPlans).

-- A row whose lease another owner took meanwhile is not touched; it will be published twice, which
-- receivers bear.
-- name: outbox_published
UPDATE cellquota.outbox SET state = 'PUBLISHED', published_at = cellquota.now(), claimed_until = NULL
WHERE outbox_id = ANY($1::bigint[]) AND claimed_by = $2 AND state NOT IN ('PUBLISHED', 'PARKED');

-- name: outbox_release
UPDATE cellquota.outbox SET claimed_by = '', claimed_until = NULL
WHERE outbox_id = ANY($1::bigint[]) AND claimed_by = $2 AND state NOT IN ('PUBLISHED', 'PARKED');

-- Rows whose receiver cannot take them yet, and those that must wait behind them: nobody claims them
-- before the pause is over, so that they do not take the places of rows that can go.
-- name: outbox_defer
UPDATE cellquota.outbox o SET claimed_by = '', claimed_until = cellquota.now() + make_interval(secs => $3::float8)
FROM (SELECT DISTINCT target, aggregate FROM cellquota.outbox WHERE outbox_id = ANY($1::bigint[])) a
WHERE o.state NOT IN ('PUBLISHED', 'PARKED') AND o.target = a.target AND o.aggregate = a.aggregate
  AND (o.outbox_id = ANY($1::bigint[]) AND o.claimed_by = $2 OR o.claimed_until IS NULL OR o.claimed_until < cellquota.now());

-- Every effect of one aggregate for the mirror, with the build raised for it, in one snapshot.
-- name: outbox_of
SELECT o.payload, o.state = 'PENDING', coalesce(m.raised_fence, 0), coalesce(m.raised_count, 0)
FROM cellquota.outbox o LEFT JOIN cellquota.campaigns p ON p.campaign_id = o.campaign_id
  LEFT JOIN cellquota.mirrors m ON m.campaign_id = o.campaign_id
    AND m.scope_key = CASE p.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE o.sku_id END
WHERE o.target = 'MIRROR' AND o.aggregate = $1 ORDER BY o.outbox_id;

-- name: outbox_park
UPDATE cellquota.outbox SET state = 'PARKED', claimed_until = NULL WHERE outbox_id = $1 AND claimed_by = $2 AND state = 'PENDING';

-- name: outbox_lag
SELECT coalesce(extract(epoch FROM cellquota.now() - min(created_at)), 0)::float8, count(*)
FROM cellquota.outbox WHERE state = 'PENDING';

-- One page of rows in their order; those that left longer than $3 seconds ago are deleted. The last id of
-- the page, how many rows it has, how many were deleted, and whether it reaches rows that may not go yet.
-- Whoever walks begins anew at 0 now and then: a row that commits late is met by a later walk.
-- name: outbox_prune
WITH page AS MATERIALIZED (
  SELECT outbox_id, created_at FROM cellquota.outbox WHERE outbox_id > $1 ORDER BY outbox_id LIMIT $2
), gone AS (
  DELETE FROM cellquota.outbox o USING page p
  WHERE o.outbox_id = p.outbox_id AND o.state = 'PUBLISHED' AND o.published_at < cellquota.now() - make_interval(secs => $3::float8)
  RETURNING o.outbox_id
)
SELECT coalesce(max(outbox_id), 0), count(*), (SELECT count(*) FROM gone),
  coalesce(max(created_at) >= cellquota.now() - make_interval(secs => $3::float8), false) FROM page;
