-- Entries of lotteries, added by the app's role and never changed by it.

-- name: entries_rules
SELECT campaign_id, version FROM cellquota.campaigns WHERE campaign_id = ANY($1::text[]);

-- Adds who may enter: a bucket that is open here, entry that was not closed. Who entered before is left
-- as he is.
-- name: entries_add
INSERT INTO cellquota.entries (campaign_id, sku_id, user_id, entry_id, tickets, entered_at)
SELECT e.campaign_id, e.sku_id, e.user_id, e.entry_id, e.tickets, cellquota.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::int[]) AS e(campaign_id, sku_id, user_id, entry_id, tickets, bucket)
WHERE EXISTS (SELECT FROM cellquota.skus s WHERE (s.campaign_id, s.sku_id) = (e.campaign_id, e.sku_id))
  AND EXISTS (SELECT FROM cellquota.buckets b WHERE b.campaign_id = e.campaign_id AND b.domain = '' AND b.state = 'OPEN'
              AND e.bucket BETWEEN b.bucket_from AND b.bucket_to)
  AND NOT EXISTS (SELECT FROM cellquota.entry_closings c WHERE (c.campaign_id, c.sku_id) = (e.campaign_id, e.sku_id))
ORDER BY e.campaign_id, e.sku_id, e.user_id
ON CONFLICT (campaign_id, sku_id, user_id) DO NOTHING
RETURNING entry_id;

-- What there is of each ask after that: the entry, and what stands against one.
-- name: entries_standing
SELECT (a.n - 1)::int, coalesce(e.entry_id, ''), coalesce(e.tickets, 0), coalesce(e.won, false), e.entered_at, c.drawn_at IS NOT NULL, c.closed_at IS NOT NULL,
  EXISTS (SELECT FROM cellquota.skus s WHERE (s.campaign_id, s.sku_id) = (a.campaign_id, a.sku_id)),
  EXISTS (SELECT FROM cellquota.buckets b WHERE b.campaign_id = a.campaign_id AND b.domain = '' AND b.state = 'OPEN' AND a.bucket BETWEEN b.bucket_from AND b.bucket_to)
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) WITH ORDINALITY AS a(campaign_id, sku_id, user_id, bucket, n)
LEFT JOIN cellquota.entries e ON (e.campaign_id, e.sku_id, e.user_id) = (a.campaign_id, a.sku_id, a.user_id)
LEFT JOIN cellquota.entry_closings c ON (c.campaign_id, c.sku_id) = (a.campaign_id, a.sku_id);

-- name: entry_get
SELECT e.entry_id, e.tickets, e.won, e.entered_at, c.drawn_at IS NOT NULL
FROM cellquota.entries e LEFT JOIN cellquota.entry_closings c ON (c.campaign_id, c.sku_id) = (e.campaign_id, e.sku_id)
WHERE (e.campaign_id, e.sku_id, e.user_id) = ($1, $2, $3);
