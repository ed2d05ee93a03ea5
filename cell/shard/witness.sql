-- How far this shard came (migration 00006).

-- name: witness_known
SELECT to_regprocedure('cellquota.witness()') IS NOT NULL;

-- name: witness_read
SELECT cellquota.witness();
