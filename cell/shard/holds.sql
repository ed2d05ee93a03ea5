-- Unpaid orders of one user and of one device, counted where they are made (R-081).

-- Two transactions that would each see the other's order too late take turns: by campaign and one of 64
-- stripes, in order, after stock rows and buyers. In a statement of its own: the count, with a later
-- snapshot, sees what committed while it was awaited. Two-key locks are apart from the shard's own.
-- name: batch_holds_lock
SELECT count(pg_advisory_xact_lock(k.campaign, k.stripe)) FROM (
  SELECT DISTINCT hashtext('holds:' || h.campaign_id) AS campaign, hashtext(h.holder) & 63 AS stripe
  FROM unnest($1::text[], $2::text[]) AS h(campaign_id, holder) ORDER BY 1, 2) k;

-- No more are counted than any rule allows (1,000).
-- name: batch_holds_count
SELECT (e.n - 1)::int,
  (SELECT count(*) FROM (SELECT FROM cellquota.reservations r WHERE r.campaign_id = e.campaign_id AND r.user_id = e.user_id
    AND r.state IN ('RESERVED', 'MANUAL_REVIEW') LIMIT 1000) u)::int,
  (SELECT count(*) FROM (SELECT FROM cellquota.reservations r WHERE r.campaign_id = e.campaign_id AND r.device_id = e.device_id AND r.device_id <> ''
    AND r.state IN ('RESERVED', 'MANUAL_REVIEW') LIMIT 1000) d)::int
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS e(campaign_id, user_id, device_id, n);
