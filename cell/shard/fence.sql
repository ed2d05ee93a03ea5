-- The fence, the term and the life signs, as the cell may read and raise them.

-- name: fence_read
SELECT cell_id, fence_version, messages_from, state, instance_group, state_since, term_count, term_id
FROM cellquota.fence CROSS JOIN cellquota.term;

-- name: term_raise
SELECT cellquota.raise_term($1::bigint, $2::text);

-- The timeline is read from the current WAL file's name where possible: after a promotion the
-- control file's checkpoint may still name the old one.
-- name: shard_identity
SELECT (SELECT system_identifier::text FROM pg_control_system()) || '/' ||
  CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
       ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END;

-- name: heartbeat_beat
INSERT INTO cellquota.heartbeat AS h (written_at, writable_since) VALUES (cellquota.now(), cellquota.now())
ON CONFLICT (one) DO UPDATE SET written_at = excluded.written_at,
  writable_since = CASE WHEN excluded.written_at - h.written_at > make_interval(secs => $1::float8)
                        THEN excluded.written_at ELSE h.writable_since END;

-- The reporter's lock lies beside the writers' key. It lives as long as its session.
-- name: reporter_try
SELECT pg_try_advisory_lock(cellquota.lock_key() + 1);

-- The lock of the process that writes the gates of the cell's mirrors.
-- name: gates_try
SELECT pg_try_advisory_lock(cellquota.lock_key() + 8);

-- The longest that any of the cell's own sessions has been waiting for a row or a table. Whoever waits
-- for an advisory lock waits for its turn, and other roles (a backup, an operator) sell nothing.
-- name: longest_lock_wait
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float8
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid -- a wait for a row is one for a transaction, which is of no database
WHERE NOT l.granted AND l.locktype IN ('transactionid', 'tuple', 'relation') AND a.datname = current_database() AND a.usename = current_user;

-- name: shard_now
SELECT cellquota.now();
