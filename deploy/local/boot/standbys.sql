SELECT count(*) FROM pg_stat_replication WHERE application_name = $1 AND sync_state = 'sync'
