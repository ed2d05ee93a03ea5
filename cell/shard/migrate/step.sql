-- The newest migration applied; 0 before the first. The table is versionTable.
SELECT coalesce(max(version_id), 0) FROM cellquota.goose_db_version WHERE is_applied
