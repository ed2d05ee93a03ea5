-- The same as in outbox.sql, for a schema of step 2: there an aggregate's rows are found by a partial index
-- of pending ones alone, and only where the statement says so. Goes with step 4.

-- name: outbox_claim_step2
WITH c AS MATERIALIZED (
  SELECT outbox_id, aggregate FROM cellquota.outbox
  WHERE target = $1 AND state = 'PENDING' AND (claimed_by = $3 OR claimed_until IS NULL OR claimed_until < cellquota.now())
  ORDER BY outbox_id LIMIT $2 FOR UPDATE SKIP LOCKED
), ok AS (
  SELECT c.outbox_id FROM c WHERE NOT EXISTS (
    SELECT FROM cellquota.outbox o WHERE o.target = $1 AND o.state = 'PENDING' AND o.aggregate = c.aggregate
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

-- name: outbox_defer_step2
UPDATE cellquota.outbox o SET claimed_by = '', claimed_until = cellquota.now() + make_interval(secs => $3::float8)
FROM (SELECT DISTINCT target, aggregate FROM cellquota.outbox WHERE outbox_id = ANY($1::bigint[])) a
WHERE o.state = 'PENDING' AND o.target = a.target AND o.aggregate = a.aggregate
  AND (o.outbox_id = ANY($1::bigint[]) AND o.claimed_by = $2 OR o.claimed_until IS NULL OR o.claimed_until < cellquota.now());
