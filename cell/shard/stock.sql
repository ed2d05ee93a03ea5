-- Stock rows, read and moved. Every move writes its ledger entry in the same statement, with before
-- and after as the UPDATE returned them.

-- name: stock_all
SELECT campaign_id, sku_id, granted, available, reserved, confirmed, released, version,
  adjustment_version, last_number, last_adjustment_id, book_record_id
FROM cellquota.stock ORDER BY campaign_id, sku_id;

-- name: stock_one
SELECT campaign_id, sku_id, granted, available, reserved, confirmed, released, version,
  adjustment_version, last_number, last_adjustment_id, book_record_id
FROM cellquota.stock WHERE campaign_id = $1 AND sku_id = $2;

-- name: stock_lock_one
SELECT campaign_id, sku_id, granted, available, reserved, confirmed, released, version,
  adjustment_version, last_number, last_adjustment_id, book_record_id
FROM cellquota.stock WHERE campaign_id = $1 AND sku_id = $2 FOR UPDATE;

-- stock_move applies entries in the order given: $3 action, $4 business number, $5..$7 deltas of
-- available, reserved and confirmed, $8 units to count as released. $9 fence version, $10 source,
-- $11 actor. The constraints of stock refuse what does not fit; the caller compares the number of
-- rows with the number of entries. Rows were locked before, in order.
-- name: stock_move
WITH e AS (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::int[], $7::int[], $8::int[])
    WITH ORDINALITY AS e(campaign_id, sku_id, action, business_no, d_available, d_reserved, d_confirmed, released, n)
), d AS (
  SELECT campaign_id, sku_id, sum(d_available)::int AS d_available, sum(d_reserved)::int AS d_reserved,
    sum(d_confirmed)::int AS d_confirmed, sum(released)::bigint AS released, count(*) AS entries
  FROM e GROUP BY campaign_id, sku_id
), s AS (
  UPDATE cellquota.stock s SET
    granted = s.granted + d.d_available + d.d_reserved + d.d_confirmed,
    available = s.available + d.d_available, reserved = s.reserved + d.d_reserved, confirmed = s.confirmed + d.d_confirmed,
    released = s.released + d.released, version = s.version + d.entries, updated_at = cellquota.now()
  FROM d WHERE s.campaign_id = d.campaign_id AND s.sku_id = d.sku_id
  RETURNING s.campaign_id, s.sku_id, s.available - d.d_available AS available, s.reserved - d.d_reserved AS reserved,
    s.confirmed - d.d_confirmed AS confirmed, s.version - d.entries AS version
), x AS (
  SELECT e.*, s.available, s.reserved, s.confirmed, s.version,
    sum(e.d_available) OVER w AS a, sum(e.d_reserved) OVER w AS r, sum(e.d_confirmed) OVER w AS c, row_number() OVER w AS k
  FROM e JOIN s ON s.campaign_id = e.campaign_id AND s.sku_id = e.sku_id
  WINDOW w AS (PARTITION BY e.campaign_id, e.sku_id ORDER BY e.n)
)
INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
  before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed,
  stock_version, fence_version, source, actor, created_at)
SELECT campaign_id, sku_id, action, business_no, action || ':' || business_no || ':1', d_available, d_reserved, d_confirmed,
  available + a - d_available, available + a, reserved + r - d_reserved, reserved + r, confirmed + c - d_confirmed, confirmed + c,
  version + k, $9::bigint, $10::text, $11::text, cellquota.now()
FROM x ORDER BY n;
