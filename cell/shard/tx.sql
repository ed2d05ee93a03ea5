-- What every transaction begins with, and what Open looks at.

-- name: tx_lock_shared
SELECT pg_advisory_xact_lock_shared(cellquota.lock_key());

-- name: tx_require_fence
SELECT cellquota.require_fence($1::bigint, $2::text, $3::text);

-- name: schema_step
SELECT coalesce(max(version_id), 0) FROM cellquota.goose_db_version WHERE is_applied;

-- name: schema_synchronous
SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit');

-- name: carried_known
SELECT to_regclass('cellquota.carried_requests') IS NOT NULL;

-- How long each later statement of this transaction may take, in milliseconds.
-- name: statement_bound
SELECT set_config('statement_timeout', $1, true);
