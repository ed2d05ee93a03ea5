-- Rules of campaigns.

-- name: rules_lock
SELECT version, state, purchase_scope FROM cellquota.campaigns WHERE campaign_id = $1 FOR UPDATE;

-- A version that is not above the stored one changes nothing: zero rows.
-- name: rules_upsert
INSERT INTO cellquota.campaigns AS c (campaign_id, version, state, open_at, close_at, purchase_scope, reservation_ttl, rules, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, make_interval(secs => $7::float8), $8, cellquota.now())
ON CONFLICT (campaign_id) DO UPDATE SET version = excluded.version, state = excluded.state, open_at = excluded.open_at,
  close_at = excluded.close_at, reservation_ttl = excluded.reservation_ttl, rules = excluded.rules, updated_at = excluded.updated_at
WHERE c.version < excluded.version;

-- name: rules_skus
INSERT INTO cellquota.skus AS s (campaign_id, sku_id, amount, currency, inventory_mode, paused, final)
SELECT $1, * FROM unnest($2::text[], $3::text[]::numeric[], $4::text[], $5::text[], $6::bool[], $7::bool[])
ON CONFLICT (campaign_id, sku_id) DO UPDATE SET amount = excluded.amount, currency = excluded.currency,
  paused = excluded.paused, final = excluded.final;

-- A stock row from the start, so that an order transaction always finds one to lock.
-- name: rules_stock
INSERT INTO cellquota.stock (campaign_id, sku_id, adjustment_version, updated_at)
SELECT $1, sku_id, $3::bigint, cellquota.now() FROM unnest($2::text[]) AS u(sku_id)
ON CONFLICT (campaign_id, sku_id) DO NOTHING;

-- Buckets are installed once, by the first version that deals any; a handover changes them later.
-- name: rules_buckets
INSERT INTO cellquota.buckets (campaign_id, domain, bucket_from, bucket_to, state, moved_version)
SELECT $1, d.domain, d.bucket_from, d.bucket_to, 'OPEN', 1
FROM unnest($2::text[], $3::int[], $4::int[]) AS d(domain, bucket_from, bucket_to)
WHERE NOT EXISTS (SELECT FROM cellquota.buckets b WHERE b.campaign_id = $1);

-- name: rules_all
SELECT campaign_id, version, state, rules FROM cellquota.campaigns ORDER BY campaign_id;

-- name: rules_version
SELECT version FROM cellquota.campaigns WHERE campaign_id = $1;

-- name: rules_versions
SELECT coalesce(sum(version), 0) || '/' || count(*) FROM cellquota.campaigns;

-- name: buckets_of
SELECT domain, bucket_from, bucket_to, state FROM cellquota.buckets WHERE campaign_id = $1 ORDER BY domain, bucket_from;

-- What the mirror may admit: buckets that came last are shown when their buyers' marks have left.
-- name: buckets_shown
SELECT b.domain, b.bucket_from, b.bucket_to,
  CASE WHEN b.moved_version > 1 AND b.moved_version = max(b.moved_version) FILTER (WHERE b.state = 'OPEN') OVER () AND EXISTS (SELECT FROM cellquota.outbox o
    WHERE o.target = 'MIRROR' AND o.state = 'PENDING' AND o.event_type = 'carried' AND o.campaign_id = $1) THEN 'IMPORTING' ELSE b.state END
FROM cellquota.buckets b WHERE b.campaign_id = $1;
