-- The ends of MANUAL_REVIEW: by a person, once per reservation (migration 5).

-- name: reviews_known
SELECT to_regclass('cellquota.review_endings') IS NOT NULL;

-- What stands under the operation's id ($1), or about the reservation ($2); at most two rows.
-- name: review_ended
SELECT operation_id, action, reservation_id, quantity, ended_as, ended_for, reason, actor, incident, ended_at
FROM cellquota.review_endings WHERE operation_id = $1
UNION
SELECT operation_id, action, reservation_id, quantity, ended_as, ended_for, reason, actor, incident, ended_at
FROM cellquota.review_endings WHERE reservation_id = $2;

-- No row: the id is another operation's, which committed meanwhile.
-- name: review_end
INSERT INTO cellquota.review_endings (operation_id, action, reservation_id, campaign_id, sku_id, quantity, ended_as, ended_for, reason, actor, incident,
  since, ended_at, fence_version, topic_id, error_class, value)
SELECT $1, $2, $3::text, $4, $5, $6, $7, $8, $9, $10, $11,
  coalesce($12::timestamptz, (SELECT updated_at FROM cellquota.reservations WHERE reservation_id = $3::text), cellquota.now()), cellquota.now(), $13, $14, $15, $16
ON CONFLICT (operation_id) DO NOTHING RETURNING ended_at;

-- A message's row, locked; an order of it would be somebody else's doing.
-- name: parked_lock
SELECT i.campaign_id, i.sku_id, i.user_id, i.request_id, i.quantity, i.outcome, i.reason, i.fence_version, i.build_count, i.topic, i.partition,
  i.kafka_offset, i.received_at, EXISTS (SELECT FROM cellquota.orders o WHERE o.reservation_id = i.reservation_id)
FROM cellquota.inbox i WHERE i.event_id = $1 FOR UPDATE OF i;

-- name: reservation_state
SELECT state, reason FROM cellquota.reservations WHERE reservation_id = $1;

-- Values parked at a place of the log; a topic that was made anew may have one there too.
-- name: parked_values
SELECT parked_id, topic_id, error_class, value FROM cellquota.parked WHERE topic = $1 AND partition = $2 AND kafka_offset = $3;

-- name: parked_delete
DELETE FROM cellquota.parked WHERE parked_id = $1;

-- What is named by its key is not said to be in the state of a partial index (TestPlans).
-- name: parked_reject
UPDATE cellquota.inbox SET outcome = 'REJECTED', reason = $2 WHERE event_id = $1 AND outcome NOT IN ('ORDERED', 'REJECTED', 'RELEASED');

-- A parked message may hold its user's place (one that was replayed on a shard that went back in time).
-- name: parked_buyer_drop
DELETE FROM cellquota.buyers WHERE campaign_id = $1 AND scope_key IN ($2, '*') AND user_id = $3 AND reservation_id = $4 AND origin = 'OWN';
