-- Privileges of the three roles; run after every migration, idempotent. A role that does not exist
-- yet is skipped: create-roles runs this file again. Before the schema exists it does nothing.
DO $$
DECLARE t text;
BEGIN
  PERFORM pg_advisory_xact_lock(4851379024619); -- two at once would fail on the catalogue's rows
  IF to_regclass('cellquota.ledger') IS NULL THEN
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN
    GRANT USAGE ON SCHEMA cellquota TO cellquota_app;
    FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'cellquota' LOOP
      EXECUTE format('REVOKE ALL ON cellquota.%I FROM cellquota_app', t);
      CONTINUE WHEN t LIKE 'goose%';
      IF t IN ('fence', 'fence_history', 'term', 'cell_switch', 'tokens', 'ledger_parts', 'bucket_closings', 'bucket_imports', 'carried_requests', 'recovery', 'recovery_positions', 'recovery_fences',
        'ledger_archive', 'archives', 'entry_closings') THEN
        EXECUTE format('GRANT SELECT ON cellquota.%I TO cellquota_app', t);
      ELSIF t IN ('ledger', 'buckets', 'review_endings', 'finding_repairs', 'entries') THEN
        EXECUTE format('GRANT SELECT, INSERT ON cellquota.%I TO cellquota_app', t);
      ELSE
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON cellquota.%I TO cellquota_app', t);
      END IF;
    END LOOP;
    GRANT SELECT ON cellquota.goose_db_version TO cellquota_app;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA cellquota TO cellquota_app;
    GRANT EXECUTE ON FUNCTION cellquota.now(), cellquota.lock_key(), cellquota.amount_text(numeric), cellquota.require_fence(bigint, text, text),
      cellquota.raise_term(bigint, text) TO cellquota_app;
    IF to_regclass('cellquota.cell_switch') IS NOT NULL THEN -- from step 2
      GRANT EXECUTE ON FUNCTION cellquota.set_cell_switch(boolean, bigint, text) TO cellquota_app;
    END IF;
    IF to_regprocedure('cellquota.witness()') IS NOT NULL THEN -- from step 6
      GRANT EXECUTE ON FUNCTION cellquota.witness() TO cellquota_app;
    END IF;
    IF to_regclass('cellquota.v_reconcile_holds') IS NOT NULL THEN -- from step 7
      GRANT SELECT ON cellquota.v_reconcile_inbox, cellquota.v_reconcile_holds, cellquota.v_reconcile_entries, cellquota.v_reconcile_chain,
        cellquota.v_reconcile_buyers, cellquota.v_frozen_skus TO cellquota_app;
      GRANT EXECUTE ON FUNCTION cellquota.freezes(text, text) TO cellquota_app;
    END IF;
    IF to_regclass('cellquota.archives') IS NOT NULL THEN -- from step 9
      GRANT EXECUTE ON FUNCTION cellquota.archive_step(text, double precision, int) TO cellquota_app;
      GRANT UPDATE (pruned_at) ON cellquota.archives TO cellquota_app;
    END IF;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_fencer') THEN
    GRANT USAGE ON SCHEMA cellquota TO cellquota_fencer;
    GRANT SELECT ON ALL TABLES IN SCHEMA cellquota TO cellquota_fencer;
    GRANT EXECUTE ON FUNCTION cellquota.now(), cellquota.lock_key(), cellquota.install(text, text), cellquota.raise_term(bigint, text),
      cellquota.fence_cell(text, bigint, text, int), cellquota.fence_proof(bigint), cellquota.restore_cell(text, bigint, text, text, int),
      cellquota.activate_cell(text, bigint, text, int) TO cellquota_fencer;
    IF to_regclass('cellquota.bucket_imports') IS NOT NULL THEN -- from step 4
      GRANT EXECUTE ON FUNCTION cellquota.import_buyers(text, text, text, int, int, bigint, text[], text[], boolean, text[], text[], text[], text[], bytea[]),
        cellquota.import_requests(text, text, text, int, int, bigint, text[], text[], boolean, text[], text[], text[], text[], int[], text[], text[], text[]),
        cellquota.open_buckets(text, text, text, int, int, bigint) TO cellquota_fencer;
    END IF;
    IF to_regprocedure('cellquota.witness()') IS NOT NULL THEN -- from step 6
      GRANT EXECUTE ON FUNCTION cellquota.close_buckets(text, text, text, int, int, bigint, text, int),
        cellquota.import_buckets(text, text, text, int, int, bigint, text, jsonb),
        cellquota.witness(), cellquota.recover_begin(text, bigint, text, bigint, jsonb, jsonb, jsonb, text, int),
        cellquota.recover_adjustment(text, bigint, text, text, text, bigint, bigint, text, int, text),
        cellquota.recover_messages(text, bigint), cellquota.recover_finish(text, bigint) TO cellquota_fencer;
    END IF;
    IF to_regclass('cellquota.entry_closings') IS NOT NULL THEN -- from step 8
      GRANT EXECUTE ON FUNCTION cellquota.close_entries(text, text, text, int), cellquota.draw_entries(text, text, text, text[]),
        cellquota.end_draw(text, text, text, bigint) TO cellquota_fencer;
    END IF;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_reader') THEN
    GRANT USAGE ON SCHEMA cellquota TO cellquota_reader;
    FOR t IN SELECT viewname FROM pg_views WHERE schemaname = 'cellquota' LOOP
      EXECUTE format('GRANT SELECT ON cellquota.%I TO cellquota_reader', t);
    END LOOP;
    GRANT EXECUTE ON FUNCTION cellquota.now() TO cellquota_reader;
    IF to_regclass('cellquota.v_frozen_skus') IS NOT NULL THEN -- from step 7
      GRANT EXECUTE ON FUNCTION cellquota.freezes(text, text) TO cellquota_reader;
    END IF;
  END IF;
END $$;
