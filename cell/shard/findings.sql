-- Findings: who looks, what was found, what was done. Nothing here touches stock but finding_reverse,
-- which adds an entry.

-- name: reconcile_claim
UPDATE cellquota.reconcile_walk SET claimed_by = $1, claimed_until = cellquota.now() + make_interval(secs => $2::float8)
WHERE claimed_by IN ('', $1) OR claimed_until IS NULL OR claimed_until < cellquota.now()
RETURNING cursor, cycle;

-- name: reconcile_advance
UPDATE cellquota.reconcile_walk SET cursor = $2, cycle = cycle + CASE WHEN $3::bool THEN 1 ELSE 0 END,
  ended_at = CASE WHEN $3::bool THEN cellquota.now() ELSE ended_at END,
  began_at = CASE WHEN $3::bool THEN cellquota.now() - make_interval(secs => $4::float8) ELSE began_at END WHERE claimed_by = $1;

-- name: reconcile_release
UPDATE cellquota.reconcile_walk SET claimed_by = '', claimed_until = NULL WHERE claimed_by = $1;

-- name: reconcile_run_ask
INSERT INTO cellquota.reconcile_runs (run_id, campaign_id, actor, reason, asked_at) VALUES ($1, $2, $3, $4, cellquota.now()) ON CONFLICT (run_id) DO NOTHING;

-- name: reconcile_run_read
SELECT run_id, campaign_id, actor, asked_at, started_at, ended_at, requests, found, detail FROM cellquota.reconcile_runs WHERE run_id = $1;

-- name: reconcile_run_next
SELECT run_id, campaign_id, actor, asked_at, started_at, ended_at, requests, found, detail FROM cellquota.reconcile_runs WHERE ended_at IS NULL ORDER BY asked_at, run_id LIMIT 1;

-- name: reconcile_run_begin
UPDATE cellquota.reconcile_runs SET started_at = cellquota.now() WHERE run_id = $1 AND ended_at IS NULL;

-- name: reconcile_run_end
UPDATE cellquota.reconcile_runs SET ended_at = cellquota.now(), requests = $2, found = $3, detail = $4 WHERE run_id = $1 AND ended_at IS NULL;

-- The same difference again is the same row. One that was repaired and is there again is new; one that
-- waits for a person stays with that person.
-- name: finding_record
INSERT INTO cellquota.findings AS f (finding_id, kind, campaign_id, sku_id, user_id, request_id, event_id, reservation_id, order_id, entry_id, units, state, action, detail,
  found_at, looked_at, snapshot)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($10::bigint, 0), $11, $12, $13, $14, cellquota.now(), cellquota.now(), $15)
ON CONFLICT (finding_id) DO UPDATE SET looked_at = excluded.looked_at,
  user_id = excluded.user_id, request_id = excluded.request_id, event_id = excluded.event_id, reservation_id = excluded.reservation_id, order_id = excluded.order_id,
  entry_id = excluded.entry_id, units = excluded.units, detail = excluded.detail,
  action = CASE WHEN f.state = 'MANUAL_REVIEW' THEN f.action ELSE excluded.action END,
  state = CASE WHEN f.state = 'REPAIRED' THEN excluded.state ELSE f.state END,
  found_at = CASE WHEN f.state = 'REPAIRED' THEN excluded.found_at ELSE f.found_at END,
  tries = CASE WHEN f.state = 'REPAIRED' THEN 0 ELSE f.tries END,
  first_try_at = CASE WHEN f.state = 'REPAIRED' THEN NULL ELSE f.first_try_at END,
  next_try_at = CASE WHEN f.state = 'REPAIRED' THEN NULL ELSE f.next_try_at END,
  repaired_at = NULL, snapshot = coalesce(CASE WHEN f.state = 'REPAIRED' THEN NULL ELSE f.snapshot END, excluded.snapshot)
RETURNING (xmax = 0 OR f.found_at = f.looked_at) AS fresh;

-- name: finding_met
UPDATE cellquota.findings SET looked_at = cellquota.now() WHERE finding_id = $1 AND state <> 'REPAIRED';

-- name: finding_read
SELECT finding_id, kind, campaign_id, sku_id, user_id, request_id, event_id, reservation_id, order_id, coalesce(entry_id, 0), units, state, action, detail, owner, tries, found_at,
  next_try_at IS NULL OR next_try_at <= cellquota.now(), extract(epoch FROM cellquota.now() - coalesce(first_try_at, cellquota.now()))::float8,
  coalesce(looked_at < (SELECT began_at FROM cellquota.reconcile_walk), false)
FROM cellquota.findings WHERE finding_id = $1;

-- Open ones, the longest unlooked first.
-- name: finding_open
SELECT finding_id, kind, campaign_id, sku_id, user_id, request_id, event_id, reservation_id, order_id, coalesce(entry_id, 0), units, state, action, detail, owner, tries, found_at,
  next_try_at IS NULL OR next_try_at <= cellquota.now(), extract(epoch FROM cellquota.now() - coalesce(first_try_at, cellquota.now()))::float8,
  coalesce(looked_at < (SELECT began_at FROM cellquota.reconcile_walk), false)
FROM cellquota.findings WHERE state IN ('OPEN', 'PROPOSED', 'MANUAL_REVIEW') ORDER BY looked_at NULLS FIRST LIMIT $1;

-- name: finding_looked
UPDATE cellquota.findings SET looked_at = cellquota.now() WHERE finding_id = ANY($1::text[]);

-- name: finding_lock
SELECT state FROM cellquota.findings WHERE finding_id = $1 FOR UPDATE;

-- name: finding_repaired
UPDATE cellquota.findings SET state = 'REPAIRED', repaired_at = cellquota.now(), action = $2 WHERE finding_id = $1 AND state <> 'REPAIRED';

-- A try that did not help; past the budget it waits for a person.
-- name: finding_tried
UPDATE cellquota.findings SET tries = tries + 1, first_try_at = coalesce(first_try_at, cellquota.now()),
  next_try_at = cellquota.now() + make_interval(secs => $2::float8), looked_at = cellquota.now()
WHERE finding_id = $1 AND state NOT IN ('PROPOSED', 'REPAIRED', 'MANUAL_REVIEW');

-- name: finding_review
UPDATE cellquota.findings SET state = 'MANUAL_REVIEW' WHERE finding_id = $1 AND state NOT IN ('PROPOSED', 'REPAIRED', 'MANUAL_REVIEW');

-- name: finding_own
UPDATE cellquota.findings SET owner = $2 WHERE finding_id = $1;

-- name: finding_note
INSERT INTO cellquota.finding_repairs (finding_id, action, outcome, detail, actor, reason, incident, approval_id, approver, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, cellquota.now());

-- name: finding_counts
SELECT kind, state, count(*) FROM cellquota.findings WHERE state IN ('OPEN', 'PROPOSED', 'MANUAL_REVIEW') GROUP BY kind, state;

-- name: finding_frozen
SELECT finding_id FROM cellquota.v_frozen_skus WHERE campaign_id = $1 AND sku_id = $2;

-- A message that will never come is answered in its place: who comes later finds this row.
-- name: finding_tombstone
INSERT INTO cellquota.inbox (event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, fingerprint,
  topic, partition, kafka_offset, fence_version, build_count, written_under, admitted_at, received_at)
SELECT 'reserve-' || $1::text, $1, $2, $3, $4, $5, $6, 'REJECTED', 'LOST_ADMISSION', '', '', 0, -1, $7, $8, $9, cellquota.now(), cellquota.now()
WHERE NOT EXISTS (SELECT FROM cellquota.reservations r WHERE r.reservation_id = $1)
ON CONFLICT (event_id) DO NOTHING;

-- Its give-back has an id of its own then.
-- name: finding_returned
SELECT EXISTS (SELECT FROM cellquota.review_endings WHERE reservation_id = $1 AND action = 'RETURN');

-- name: finding_inbox
SELECT outcome, reason FROM cellquota.inbox WHERE event_id = 'reserve-' || $1::text;

-- name: finding_buyer_drop
DELETE FROM cellquota.buyers b WHERE b.campaign_id = $1 AND b.user_id = $2 AND b.reservation_id = $3 AND b.origin = 'OWN'
  AND NOT EXISTS (SELECT FROM cellquota.reservations r WHERE r.reservation_id = b.reservation_id);

-- The opposite of entry $3, under the finding's id, by the row that was locked. $5 fence version, $6 actor.
-- The only entry of an action that its reservation's state stands on is left alone: the reservation's end
-- moves the same units. The mirror took units at an admission: it gets those of the first RESERVE, unless
-- the message's own outcome gives them back, and none for an entry that an admission is not behind.
-- name: finding_reverse
WITH e AS (
  SELECT l.*, l.action NOT IN ('RESERVE', 'CONFIRM', 'RELEASE') OR l.action = 'RESERVE'
      AND NOT EXISTS (SELECT FROM cellquota.ledger o WHERE o.business_no = l.business_no AND o.campaign_id = $1 AND o.action = 'RESERVE' AND o.entry_id < l.entry_id)
      AND NOT EXISTS (SELECT FROM cellquota.inbox i WHERE i.event_id = 'reserve-' || l.business_no AND i.outcome <> 'ORDERED') AS mirrored
  FROM cellquota.ledger l WHERE l.campaign_id = $1 AND l.sku_id = $2 AND l.entry_id = $3
    AND NOT EXISTS (SELECT FROM cellquota.ledger x WHERE x.campaign_id = $1 AND x.reverses = $3)
    AND NOT (EXISTS (SELECT FROM cellquota.reservations r WHERE r.reservation_id = l.business_no
        AND (l.action = 'RESERVE' OR (l.action, r.state) IN (('CONFIRM', 'CONFIRMED'), ('RELEASE', 'RELEASED'))))
      AND NOT EXISTS (SELECT FROM cellquota.v_reconcile_entries o WHERE o.business_no = l.business_no AND o.campaign_id = $1 AND o.sku_id = $2
        AND o.action = l.action AND o.entry_id <> l.entry_id AND NOT o.reversed))
), s AS (
  UPDATE cellquota.stock s SET granted = s.granted - e.delta_available - e.delta_reserved - e.delta_confirmed,
    available = s.available - e.delta_available, reserved = s.reserved - e.delta_reserved, confirmed = s.confirmed - e.delta_confirmed,
    version = s.version + 1, updated_at = cellquota.now()
  FROM e WHERE s.campaign_id = e.campaign_id AND s.sku_id = e.sku_id
  RETURNING s.*
)
INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
  before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, reverses, created_at)
SELECT e.campaign_id, e.sku_id, 'REVERSAL', $4::text, 'REVERSAL:' || $4::text || ':1', -e.delta_available, -e.delta_reserved, -e.delta_confirmed,
  s.available + e.delta_available, s.available, s.reserved + e.delta_reserved, s.reserved, s.confirmed + e.delta_confirmed, s.confirmed,
  s.version, $5, 'repair', $6, e.entry_id, cellquota.now()
FROM e, s RETURNING entry_id, CASE WHEN (SELECT mirrored FROM e) THEN delta_available ELSE 0 END, stock_version;

-- name: finding_reversed
SELECT entry_id FROM cellquota.ledger WHERE campaign_id = $1 AND sku_id = $2 AND idempotency_key = 'REVERSAL:' || $3::text || ':1';

-- The scene of a quantity finding: what people would look at, before anybody moves it.
-- name: finding_scene
SELECT jsonb_build_object('at', cellquota.now(),
  'stock', (SELECT to_jsonb(s) FROM cellquota.stock s WHERE s.campaign_id = $1 AND s.sku_id = $2),
  'ledger', (SELECT jsonb_build_object('first', min(entry_id), 'last', max(entry_id), 'entries', count(*)) FROM cellquota.ledger WHERE campaign_id = $1 AND sku_id = $2),
  'entries', (SELECT jsonb_agg(to_jsonb(l) ORDER BY l.entry_id) FROM (SELECT entry_id, action, business_no, delta_available, delta_reserved, delta_confirmed,
      stock_version, source, actor, created_at FROM cellquota.ledger WHERE campaign_id = $1 AND sku_id = $2 ORDER BY entry_id DESC LIMIT 20) l),
  'order', (SELECT to_jsonb(o) FROM cellquota.orders o WHERE o.reservation_id = $3),
  'reservation', (SELECT to_jsonb(r) FROM cellquota.reservations r WHERE r.reservation_id = $3),
  'positions', (SELECT jsonb_agg(to_jsonb(p)) FROM cellquota.positions p),
  'mirror', $4::jsonb);

-- name: finding_any_sku
SELECT sku_id FROM cellquota.skus WHERE campaign_id = $1 ORDER BY sku_id LIMIT 1;

-- A reservation without an order that is still held, or one that is released and whose units are not: by
-- exactly one RESERVE of $2 units that nothing followed. What ended otherwise is left alone.
-- name: finding_release
UPDATE cellquota.reservations r SET state = 'RELEASED', reason = CASE WHEN r.state = 'RELEASED' THEN r.reason ELSE 'CANCELLED' END, updated_at = cellquota.now()
WHERE r.reservation_id = $1 AND (r.state = 'RESERVED' AND NOT EXISTS (SELECT FROM cellquota.orders o WHERE o.reservation_id = r.reservation_id) OR r.state NOT IN ('RESERVED', 'CONFIRMED', 'MANUAL_REVIEW'))
  AND r.quantity = $2::int AND (SELECT count(*) = 1 AND min(e.action) = 'RESERVE' AND min(e.delta_reserved) = $2::int FROM cellquota.v_reconcile_entries e
    WHERE e.business_no = r.reservation_id AND e.action IN ('RESERVE', 'CONFIRM', 'RELEASE') AND NOT e.reversed);

-- A person's republish or return: the cell looks after it again.
-- name: finding_reopen
UPDATE cellquota.findings SET state = 'OPEN', tries = 0, first_try_at = NULL, next_try_at = cellquota.now() + make_interval(secs => $2::float8), action = $3
WHERE finding_id = $1 AND state NOT IN ('REPAIRED');
