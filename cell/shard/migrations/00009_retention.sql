-- +goose Up
-- What a settled campaign leaves: its ledger moves out of its partition into one archive, with what it
-- began and ended at, and stays readable in the same views. Only additions: a program of step 8 runs on
-- this schema and archives nothing.

-- The ledger of archived campaigns: no partitions, immutable, and never deleted from.
CREATE TABLE cellquota.ledger_archive (LIKE cellquota.ledger INCLUDING CONSTRAINTS);
ALTER TABLE cellquota.ledger_archive ADD PRIMARY KEY (entry_id), ADD UNIQUE (campaign_id, sku_id, idempotency_key);
CREATE INDEX ledger_archive_by_business_no ON cellquota.ledger_archive (business_no);
CREATE INDEX ledger_archive_by_sku ON cellquota.ledger_archive (campaign_id, sku_id, entry_id);
CREATE TRIGGER archive_is_immutable BEFORE UPDATE OR DELETE ON cellquota.ledger_archive
  FOR EACH ROW EXECUTE FUNCTION cellquota.refuse_change();
CREATE TRIGGER archive_is_not_truncated BEFORE TRUNCATE ON cellquota.ledger_archive
  FOR EACH STATEMENT EXECUTE FUNCTION cellquota.refuse_change();

-- What comes after the archive: a fence seals what settled campaigns left in the cell. One partition of all
-- archived campaigns, attached with the first; no default one, which every reader would hold when a new
-- campaign gets its own.
CREATE TABLE cellquota_ledger.late (LIKE cellquota.ledger INCLUDING CONSTRAINTS INCLUDING INDEXES);
CREATE TRIGGER part_is_immutable BEFORE UPDATE OR DELETE ON cellquota_ledger.late
  FOR EACH ROW EXECUTE FUNCTION cellquota.refuse_change();
CREATE TRIGGER part_is_not_truncated BEFORE TRUNCATE ON cellquota_ledger.late
  FOR EACH STATEMENT EXECUTE FUNCTION cellquota.refuse_change();

-- One row per campaign whose archive was begun; snapshot has, per SKU, what its ledger began at, the sum of
-- its entries, and the stock row then: opening + diff = closing, or nothing is archived.
CREATE TABLE cellquota.archives (
  campaign_id text COLLATE "C" PRIMARY KEY,
  part        text NOT NULL,
  snapshot    jsonb NOT NULL,
  entries     bigint NOT NULL,
  copied_to   bigint NOT NULL DEFAULT 0,
  begun_at    timestamptz NOT NULL,
  archived_at timestamptz,
  pruned_at   timestamptz -- since when only parked rows of its inbox are left
);
-- Which campaigns are not compared any more: asked for every page of a comparison.
CREATE INDEX archives_done ON cellquota.archives (campaign_id) WHERE archived_at IS NOT NULL;
CREATE VIEW cellquota.v_archives AS SELECT campaign_id, snapshot, entries, begun_at, archived_at FROM cellquota.archives;

CREATE OR REPLACE VIEW cellquota.v_ledger AS
  SELECT entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
    before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, source, actor, reverses, created_at FROM cellquota.ledger
  UNION ALL SELECT entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
    before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, source, actor, reverses, created_at FROM cellquota.ledger_archive a
  WHERE EXISTS (SELECT FROM cellquota.archives r WHERE r.campaign_id = a.campaign_id AND r.archived_at IS NOT NULL);
CREATE OR REPLACE VIEW cellquota.v_ledger_writers AS
  SELECT entry_id, campaign_id, sku_id, action, business_no, stock_version, fence_version, created_at FROM cellquota.ledger
  UNION ALL SELECT entry_id, campaign_id, sku_id, action, business_no, stock_version, fence_version, created_at FROM cellquota.ledger_archive a
  WHERE EXISTS (SELECT FROM cellquota.archives r WHERE r.campaign_id = a.campaign_id AND r.archived_at IS NOT NULL);

-- What is archived was compared before, and is compared no more: its entries are not in the ledger.
CREATE OR REPLACE VIEW cellquota.v_reconcile_inbox AS SELECT event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason,
  fence_version, build_count, topic, received_at FROM cellquota.inbox
  WHERE campaign_id NOT IN (SELECT campaign_id FROM cellquota.archives WHERE archived_at IS NOT NULL);
CREATE OR REPLACE VIEW cellquota.v_reconcile_holds AS SELECT r.reservation_id, r.request_id, r.campaign_id, r.sku_id, r.user_id, r.quantity, r.state, r.reason, r.created_at, r.updated_at,
  o.order_id, o.quantity AS order_quantity, o.state AS order_state, o.version AS order_version,
  CASE WHEN o.state = 'PENDING_PAYMENT' AND o.close_after < 'infinity' THEN o.close_after END AS due_at,
  (SELECT count(*) FROM cellquota.payments p WHERE p.order_id = o.order_id AND p.state IN ('SUCCEEDED', 'REFUND_PENDING', 'REFUNDED')) AS paid,
  (SELECT b.reservation_id FROM cellquota.buyers b WHERE b.campaign_id = r.campaign_id AND b.user_id = r.user_id
     AND b.scope_key = CASE c.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE r.sku_id END) AS buyer,
  k.inventory_mode = 'TOKEN' AS tokens,
  CASE WHEN k.inventory_mode = 'TOKEN' THEN (SELECT count(*) FROM cellquota.tokens t WHERE t.reservation_id = r.reservation_id) ELSE 0 END AS token_rows
  FROM cellquota.reservations r LEFT JOIN cellquota.orders o ON o.reservation_id = r.reservation_id
    LEFT JOIN cellquota.campaigns c ON c.campaign_id = r.campaign_id LEFT JOIN cellquota.skus k ON k.campaign_id = r.campaign_id AND k.sku_id = r.sku_id
  WHERE r.campaign_id NOT IN (SELECT campaign_id FROM cellquota.archives WHERE archived_at IS NOT NULL);
CREATE OR REPLACE VIEW cellquota.v_reconcile_buyers AS SELECT b.campaign_id, b.scope_key, b.user_id, b.reservation_id, b.origin,
  b.origin = 'OWN' AND r.found IS NULL AND i.found IS NULL AS orphan
  FROM cellquota.buyers b -- looked up row by row, never by reading all of either (OFFSET keeps them apart)
    LEFT JOIN LATERAL (SELECT true AS found FROM cellquota.reservations r WHERE r.reservation_id = b.reservation_id OFFSET 0) r ON true
    LEFT JOIN LATERAL (SELECT true AS found FROM cellquota.inbox i WHERE r.found IS NULL AND b.origin = 'OWN' AND i.event_id = 'reserve-' || b.reservation_id AND i.outcome NOT IN ('ORDERED', 'REJECTED', 'RELEASED') OFFSET 0) i ON true
  WHERE b.campaign_id NOT IN (SELECT campaign_id FROM cellquota.archives WHERE archived_at IS NOT NULL);

-- begin_archive notes what the campaigns of a partition began and ended at. CQ020: a ledger that does not
-- lead to its stock row is not archived.
-- +goose StatementBegin
CREATE FUNCTION cellquota.begin_archive(p_part text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = cellquota, pg_temp AS $$
DECLARE bad text;
BEGIN
  WITH l AS (
    SELECT campaign_id, sku_id, sum(delta_available) AS available, sum(delta_reserved) AS reserved, sum(delta_confirmed) AS confirmed, count(*) AS entries
    FROM ledger WHERE campaign_id IN (SELECT campaign_id FROM ledger_parts WHERE part = p_part) GROUP BY 1, 2
  ), rows AS (
    SELECT s.campaign_id, s.sku_id, coalesce(o.opening, ARRAY[0, 0, 0]) AS opening, coalesce(l.available, 0) AS d1, coalesce(l.reserved, 0) AS d2,
      coalesce(l.confirmed, 0) AS d3, s.available, s.reserved, s.confirmed, coalesce(l.entries, 0) AS entries
    FROM stock s JOIN ledger_parts p ON p.campaign_id = s.campaign_id AND p.part = p_part LEFT JOIN l ON l.campaign_id = s.campaign_id AND l.sku_id = s.sku_id
      LEFT JOIN LATERAL (SELECT ARRAY[e.before_available, e.before_reserved, e.before_confirmed] AS opening FROM ledger e
        WHERE e.campaign_id = s.campaign_id AND e.sku_id = s.sku_id ORDER BY e.entry_id LIMIT 1) o ON true
  ), noted AS (
    INSERT INTO archives (campaign_id, part, snapshot, entries, begun_at)
    SELECT campaign_id, p_part, jsonb_object_agg(sku_id, jsonb_build_object('entries', entries,
      'opening', to_jsonb(opening), 'diff', jsonb_build_array(d1, d2, d3), 'closing', jsonb_build_array(available, reserved, confirmed))),
      sum(entries), cellquota.now() FROM rows GROUP BY campaign_id
    ON CONFLICT DO NOTHING
  )
  SELECT string_agg(campaign_id || '/' || sku_id, ', ') INTO bad FROM rows
    WHERE (opening[1] + d1, opening[2] + d2, opening[3] + d3) IS DISTINCT FROM (available::bigint, reserved::bigint, confirmed::bigint);
  IF bad IS NOT NULL THEN
    RAISE EXCEPTION 'the ledger of % does not lead to its stock row', bad USING ERRCODE = 'CQ020';
  END IF;
END $$;
-- +goose StatementEnd

-- archive_step takes the archive of a settled campaign one step on: NOT_DUE (it, or one that shares its
-- partition, is not settled for p_after seconds), COPIED (p_limit entries, more are left), WAITING (somebody
-- uses the ledger: again later, nothing is lost) or ARCHIVED. Repeats change nothing. One process at a time:
-- the others wait for the row of the partition.
-- +goose StatementBegin
CREATE FUNCTION cellquota.archive_step(p_campaign text, p_after double precision, p_limit int) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE v_part text; v_from bigint; v_to bigint; v_rows bigint; v_off text;
  cols CONSTANT text := 'entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
    before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, reverses, created_at';
BEGIN
  SELECT part INTO v_part FROM ledger_parts WHERE campaign_id = p_campaign;
  PERFORM FROM ledger_parts WHERE part = v_part ORDER BY campaign_id FOR UPDATE;
  IF EXISTS (SELECT FROM archives WHERE campaign_id = p_campaign AND archived_at IS NOT NULL) THEN
    RETURN 'ARCHIVED';
  ELSIF v_part IS NULL OR EXISTS (SELECT FROM ledger_parts p LEFT JOIN campaigns c USING (campaign_id)
      WHERE p.part = v_part AND (c.state IS DISTINCT FROM 'SETTLED' OR c.updated_at > cellquota.now() - make_interval(secs => p_after))) THEN
    RETURN 'NOT_DUE';
  END IF;
  IF NOT EXISTS (SELECT FROM archives WHERE campaign_id = p_campaign) THEN
    PERFORM begin_archive(v_part);
  END IF;
  SELECT copied_to INTO v_from FROM archives WHERE campaign_id = p_campaign;

  EXECUTE format('WITH page AS (INSERT INTO ledger_archive (%s) SELECT %s FROM cellquota_ledger.%I WHERE entry_id > $1 ORDER BY entry_id LIMIT $2 ON CONFLICT DO NOTHING RETURNING entry_id)
    SELECT count(*), max(entry_id) FROM page', cols, cols, v_part) USING v_from, p_limit INTO v_rows, v_to;
  IF v_rows = p_limit THEN
    UPDATE archives SET copied_to = v_to WHERE part = v_part;
    RETURN 'COPIED';
  END IF;

  -- The last step: nobody adds to the partition any more (SHARE keeps writers of this campaign out, and of no
  -- other), what committed behind the walk is copied, all is compared, and then the parent is held for a moment.
  PERFORM set_config('lock_timeout', '200ms', true);
  BEGIN
    EXECUTE format('LOCK TABLE cellquota_ledger.%I IN SHARE MODE', v_part);
    EXECUTE format('INSERT INTO ledger_archive (%s) SELECT %s FROM cellquota_ledger.%I l WHERE NOT EXISTS (SELECT FROM ledger_archive a WHERE a.entry_id = l.entry_id)', cols, cols, v_part);
    EXECUTE format('SELECT string_agg(campaign_id, '', '') FROM (SELECT campaign_id, count(*) AS n, sum(entry_id) AS ids, sum(delta_available) AS a, sum(delta_reserved) AS r, sum(delta_confirmed) AS c
        FROM cellquota_ledger.%I GROUP BY 1) o FULL JOIN (SELECT campaign_id, count(*) AS n, sum(entry_id) AS ids, sum(delta_available) AS a, sum(delta_reserved) AS r, sum(delta_confirmed) AS c
        FROM ledger_archive WHERE campaign_id IN (SELECT campaign_id FROM ledger_parts WHERE part = $1) GROUP BY 1) k USING (campaign_id)
      WHERE (o.n, o.ids, o.a, o.r, o.c) IS DISTINCT FROM (k.n, k.ids, k.a, k.r, k.c)', v_part) USING v_part INTO v_off;
    IF v_off IS NOT NULL THEN
      RAISE EXCEPTION 'the archive of % is not its ledger', v_off USING ERRCODE = 'CQ020';
    END IF;
    -- Counted while only this partition is held: the parent is every campaign's.
    UPDATE archives a SET entries = (SELECT count(*) FROM ledger_archive l WHERE l.campaign_id = a.campaign_id) WHERE a.part = v_part;
    EXECUTE format('ALTER TABLE cellquota.ledger DETACH PARTITION cellquota_ledger.%I', v_part);
    EXECUTE format('DROP TABLE cellquota_ledger.%I', v_part);
    IF EXISTS (SELECT FROM pg_inherits WHERE inhrelid = 'cellquota_ledger.late'::regclass) THEN
      ALTER TABLE cellquota.ledger DETACH PARTITION cellquota_ledger.late;
    END IF;
    SELECT string_agg(quote_literal(campaign_id), ', ' ORDER BY campaign_id) INTO v_off FROM archives WHERE archived_at IS NOT NULL OR part = v_part;
    EXECUTE 'ALTER TABLE cellquota.ledger ATTACH PARTITION cellquota_ledger.late FOR VALUES IN (' || v_off || ')';
    UPDATE archives SET archived_at = cellquota.now() WHERE part = v_part;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'WAITING';
  END;
  RETURN 'ARCHIVED';
END $$;
-- +goose StatementEnd
-- A running program asks for this table as soon as it sees this step, which is before grants.sql has run.
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN
    GRANT SELECT ON cellquota.archives TO cellquota_app;
  END IF;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION cellquota.begin_archive(text), cellquota.archive_step(text, double precision, int) FROM PUBLIC;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
