-- A shard that is being recovered (migration 00006), as its cell reads it.

-- name: recovery_known
SELECT to_regclass('cellquota.recovery') IS NOT NULL;

-- name: recovery_begun
SELECT (SELECT begun_at FROM cellquota.recovery);

-- name: recovery_read
SELECT coalesce((SELECT w.upto FROM cellquota.recovery r, cellquota.recovery_positions w
  WHERE r.phase = 'MESSAGES' AND w.topic = $1 AND w.partition = $2 AND w.topic_id = $3), 0);

-- name: recovery_fences
SELECT fence_version, next_offset FROM cellquota.recovery_fences WHERE topic = $1 AND partition = $2 AND topic_id = $3;

-- An order that was made again may have been paid: the channel is asked before it is closed.
-- name: recovery_attempts
INSERT INTO cellquota.payments (order_id, payment_id, amount, currency, state, created_at, updated_at)
SELECT order_id, '*recovery', amount, currency, 'UNKNOWN', cellquota.now(), cellquota.now() FROM cellquota.orders WHERE order_id = ANY($1::text[]);
