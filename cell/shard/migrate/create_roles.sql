-- The roles that are missing. Two at once take turns, because the catalogue refuses them; a role that
-- another database's migration made at the same moment is accepted: roles belong to the whole server.
DO $$
DECLARE r text;
BEGIN
  PERFORM pg_advisory_xact_lock(4851379024620);
  FOREACH r IN ARRAY ARRAY['cellquota_app', 'cellquota_fencer', 'cellquota_reader'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I LOGIN', r);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;
    END;
  END LOOP;
END $$;
