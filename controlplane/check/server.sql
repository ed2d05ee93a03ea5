-- What is the same for every role. pg_stat_replication shows that a standby streams to anybody.
SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
  (SELECT count(*) FROM pg_stat_replication), pg_is_in_recovery();
