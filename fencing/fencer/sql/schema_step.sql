SELECT coalesce(max(version_id), 0) FROM cellquota.goose_db_version WHERE is_applied;
