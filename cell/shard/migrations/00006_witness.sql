-- +goose Up
-- Witnesses of a shard's past: what everybody who saw this shard after a commit remembers of it, so that
-- a standby promoted without the tail, a restored backup or an empty directory is known before one write.

-- Writers are kept out while this runs, as a fence keeps them out: columns take tables that they hold in
-- other orders.
SELECT pg_advisory_xact_lock(cellquota.lock_key());

-- identity names this PostgreSQL's history: "SYSTEM/TIMELINE". The timeline is read from the name of the
-- current WAL file where that is possible: after a promotion the control file's checkpoint may still name
-- the old one. A server in recovery has no history of its own yet and says so.
-- +goose StatementBegin
CREATE FUNCTION cellquota.identity() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
  SELECT (SELECT system_identifier::text FROM pg_control_system()) || '/' ||
    CASE WHEN pg_is_in_recovery() THEN 'recovering'
         ELSE (('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int)::text END
$$;
-- +goose StatementEnd

-- witness reads how far this shard has come, in one snapshot. Rows of settled campaigns are left out: they may be
-- deleted; the campaigns are named, so that nobody misses them. The names are those of the message
-- cellquota.v1.ShardWitness, in which it travels.
-- +goose StatementBegin
CREATE FUNCTION cellquota.witness() RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
  SELECT jsonb_build_object(
    'identity', cellquota.identity(),
    'fence_version', coalesce((SELECT fence_version FROM cellquota.fence), 0),
    'stocks', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', s.campaign_id, 'sku_id', s.sku_id, 'adjustment_version', s.adjustment_version,
        'last_number', s.last_number, 'stock_version', s.version)) FROM cellquota.stock s JOIN cellquota.campaigns c USING (campaign_id) WHERE c.state <> 'SETTLED'), '[]'),
    'routes', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', b.campaign_id, 'route_version', b.newest)) FROM
        (SELECT campaign_id, max(moved_version) AS newest FROM cellquota.buckets GROUP BY campaign_id) b JOIN cellquota.campaigns c USING (campaign_id) WHERE c.state <> 'SETTLED'), '[]'),
    'builds', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', m.campaign_id, 'scope', m.scope_key, 'fence_version', m.minted_fence, 'count', m.minted_count))
        FROM cellquota.mirrors m JOIN cellquota.campaigns c USING (campaign_id) WHERE c.state <> 'SETTLED'), '[]'),
    'positions', coalesce((SELECT jsonb_agg(jsonb_build_object('topic', topic, 'partition', partition, 'topic_id', topic_id, 'next_offset', next_offset, 'leader_epoch', leader_epoch))
        FROM cellquota.positions), '[]'),
    'settled_campaigns', coalesce((SELECT jsonb_agg(campaign_id) FROM cellquota.campaigns WHERE state = 'SETTLED'), '[]'))
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION cellquota.identity(), cellquota.witness() FROM PUBLIC;

-- ---------------------------------------------------------------------------------------------
-- Recovery of a shard that went back in time (architecture 4). The fencer's role carries it out; the
-- cell settles meanwhile, payments wait, and messages below recovery_positions make their orders again.

-- last_seen: the highest fence version that any witness saw. phase: UNITS while adjustments are
-- replayed, MESSAGES while the log is read again, DONE.
CREATE TABLE cellquota.recovery (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  fence_version bigint NOT NULL,
  last_seen     bigint NOT NULL CHECK (last_seen >= 1 AND last_seen < fence_version),
  phase         text NOT NULL CHECK (phase IN ('UNITS', 'MESSAGES', 'DONE')),
  begun_at      timestamptz NOT NULL,
  done_at       timestamptz,
  CHECK ((phase = 'DONE') = (done_at IS NOT NULL))
);
-- How far each partition had been read when anybody saw it last.
CREATE TABLE cellquota.recovery_positions (
  topic     text COLLATE "C" NOT NULL,
  partition int NOT NULL,
  topic_id  text COLLATE "C" NOT NULL,
  upto      bigint NOT NULL,
  PRIMARY KEY (topic, partition)
);
-- Where each earlier fence found the partitions: a message of a lower version from there on was refused.
CREATE TABLE cellquota.recovery_fences (
  fence_version bigint NOT NULL,
  topic         text COLLATE "C" NOT NULL,
  partition     int NOT NULL,
  topic_id      text COLLATE "C" NOT NULL,
  next_offset   bigint NOT NULL,
  PRIMARY KEY (fence_version, topic, partition)
);
CREATE VIEW cellquota.v_recovery AS SELECT fence_version, last_seen, phase, begun_at, done_at FROM cellquota.recovery;
CREATE VIEW cellquota.v_recovery_positions AS SELECT topic, partition, topic_id, upto FROM cellquota.recovery_positions;

-- require_fence knows a third need: PAY is SETTLE, but not while a recovery is under way.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cellquota.require_fence(p_version bigint, p_group text, p_need text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE f cellquota.fence%ROWTYPE;
BEGIN
  SELECT * INTO f FROM cellquota.fence;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'shard has no fence row: provision the cell' USING ERRCODE = 'CQ004';
  END IF;
  IF f.fence_version <> p_version THEN
    RAISE EXCEPTION 'writer holds fence version %, the shard is at %', p_version, f.fence_version USING ERRCODE = 'CQ001';
  END IF;
  IF f.instance_group <> p_group THEN
    RAISE EXCEPTION 'writer is of group %, the shard belongs to %', p_group, f.instance_group USING ERRCODE = 'CQ003';
  END IF;
  IF f.state = 'FENCED' OR (p_need = 'ACTIVE' AND f.state <> 'ACTIVE') THEN
    RAISE EXCEPTION 'fence is %, the verb needs %', f.state, p_need USING ERRCODE = 'CQ002';
  END IF;
  IF p_need = 'PAY' AND f.state <> 'ACTIVE' AND EXISTS (SELECT FROM cellquota.recovery WHERE phase <> 'DONE') THEN
    RAISE EXCEPTION 'the shard is being recovered, payments wait' USING ERRCODE = 'CQ002';
  END IF;
END $$;
-- +goose StatementEnd

-- lock_recovery begins every later verb: beside the cell's writers, under the recovery's own version.
-- +goose StatementBegin
CREATE FUNCTION cellquota.lock_recovery(p_cell text, p_version bigint) RETURNS cellquota.recovery
LANGUAGE plpgsql VOLATILE SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE; r cellquota.recovery%ROWTYPE;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(cellquota.lock_key());
  f := cellquota.require_cell(p_cell);
  IF f.fence_version <> p_version THEN
    RAISE EXCEPTION 'fence version % is not the shard''s %', p_version, f.fence_version USING ERRCODE = 'CQ001';
  END IF;
  SELECT * INTO r FROM cellquota.recovery FOR UPDATE;
  IF NOT FOUND OR r.fence_version <> p_version THEN
    RAISE EXCEPTION 'no recovery of version % was begun', p_version USING ERRCODE = 'CQ002';
  END IF;
  RETURN r;
END $$;
-- +goose StatementEnd

-- recover_begin raises the fence above every witness, settle-only, and notes what has to be reached. A
-- shard without a fence row (an empty directory) gets one. Every unpaid order has an attempt from now on
-- of which nobody knows: the channel is asked before it is closed. Idempotent.
-- +goose StatementBegin
CREATE FUNCTION cellquota.recover_begin(p_cell text, p_version bigint, p_group text, p_last_seen bigint, p_positions jsonb, p_fences jsonb, p_builds jsonb,
  p_reason text, p_wait_ms int) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE;
BEGIN
  PERFORM cellquota.lock_writers_out(p_wait_ms);
  INSERT INTO cellquota.fence (cell_id, fence_version, messages_from, state, instance_group, state_since, reason)
    SELECT p_cell, 1, 1, 'FENCED', p_group, cellquota.now(), 'recovered from nothing' WHERE NOT EXISTS (SELECT FROM cellquota.fence);
  SELECT * INTO f FROM cellquota.fence FOR UPDATE;
  IF f.cell_id <> p_cell THEN
    RAISE EXCEPTION 'shard has no fence row of cell %', p_cell USING ERRCODE = 'CQ004';
  END IF;
  IF EXISTS (SELECT FROM cellquota.recovery WHERE fence_version = p_version) AND f.fence_version = p_version THEN
    RETURN;
  END IF;
  IF f.fence_version >= p_version THEN
    RAISE EXCEPTION 'fence version % is not above the shard''s %', p_version, f.fence_version USING ERRCODE = 'CQ001';
  END IF;
  UPDATE cellquota.fence SET fence_version = p_version, state = 'SETTLE_ONLY', instance_group = p_group, state_since = cellquota.now(), reason = p_reason;
  INSERT INTO cellquota.fence_history VALUES (p_version, 'SETTLE_ONLY', cellquota.now(), p_reason);
  DELETE FROM cellquota.recovery;
  DELETE FROM cellquota.recovery_positions;
  DELETE FROM cellquota.recovery_fences;
  INSERT INTO cellquota.recovery (fence_version, last_seen, phase, begun_at) VALUES (p_version, p_last_seen, 'UNITS', cellquota.now());
  INSERT INTO cellquota.recovery_positions SELECT * FROM jsonb_to_recordset(p_positions) AS x(topic text, partition int, topic_id text, next_offset bigint);
  INSERT INTO cellquota.recovery_fences
    SELECT * FROM jsonb_to_recordset(p_fences) AS x(fence_version bigint, topic text, partition int, topic_id text, next_offset bigint);
  -- Builds that were given out are known again: their messages are not ahead of the shard.
  INSERT INTO cellquota.mirrors AS m (campaign_id, scope_key, minted_fence, minted_count)
    SELECT * FROM jsonb_to_recordset(p_builds) AS x(campaign_id text, scope text, fence_version bigint, count bigint)
    ON CONFLICT (campaign_id, scope_key) DO UPDATE SET minted_fence = excluded.minted_fence, minted_count = excluded.minted_count
    WHERE (excluded.minted_fence, excluded.minted_count) > (m.minted_fence, m.minted_count);
  INSERT INTO cellquota.payments (order_id, payment_id, amount, currency, state, created_at, updated_at)
    SELECT order_id, '*recovery', amount, currency, 'UNKNOWN', cellquota.now(), cellquota.now() FROM cellquota.orders WHERE state = 'PENDING_PAYMENT'
    ON CONFLICT (order_id, payment_id) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at; -- of an earlier recovery
END $$;
-- +goose StatementEnd

-- fence_cell is that of the first migration, and refuses a shard that is being recovered: until its log was
-- read again, units of orders that it lost are available, and a SEAL would prove them unsold.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cellquota.fence_cell(p_cell text, p_version bigint, p_reason text, p_wait_ms int) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE; s cellquota.stock%ROWTYPE; seal_id text;
BEGIN
  PERFORM cellquota.lock_writers_out(p_wait_ms);
  SELECT * INTO f FROM cellquota.fence FOR UPDATE;
  IF NOT FOUND OR f.cell_id <> p_cell THEN
    RAISE EXCEPTION 'shard has no fence row of cell %', p_cell USING ERRCODE = 'CQ004';
  END IF;
  IF f.fence_version = p_version AND f.state = 'FENCED' THEN
    RETURN cellquota.fence_proof(p_version);
  END IF;
  IF f.fence_version >= p_version THEN
    RAISE EXCEPTION 'fence version % is not above the shard''s %', p_version, f.fence_version USING ERRCODE = 'CQ001';
  END IF;
  IF EXISTS (SELECT FROM cellquota.recovery WHERE fence_version = f.fence_version AND phase <> 'DONE') THEN
    RAISE EXCEPTION 'the recovery of version % must end first: what is available may be sold', f.fence_version USING ERRCODE = 'CQ002';
  END IF;
  UPDATE cellquota.fence SET fence_version = p_version, messages_from = p_version, state = 'FENCED',
    state_since = cellquota.now(), fenced_at = cellquota.now(), reason = p_reason;
  INSERT INTO cellquota.fence_history VALUES (p_version, 'FENCED', cellquota.now(), p_reason);
  FOR s IN SELECT * FROM cellquota.stock ORDER BY campaign_id, sku_id FOR UPDATE LOOP
    seal_id := 'seal.' || p_cell || '.' || p_version || '.' || s.campaign_id || '.' || s.sku_id;
    INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, outcome, sealed_by, applied_at)
      VALUES (seal_id, s.campaign_id, s.sku_id, f.fence_version, NULL, 'SEAL', s.available, 'APPLIED', p_version, cellquota.now());
    INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
        before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
      VALUES (s.campaign_id, s.sku_id, 'SEAL', seal_id, 'SEAL:' || seal_id || ':1', -s.available, 0, 0,
        s.available, 0, s.reserved, s.reserved, s.confirmed, s.confirmed, s.version + 1, p_version, 'fencer', session_user, cellquota.now());
    UPDATE cellquota.stock SET granted = granted - s.available, available = 0, version = version + 1,
      adjustment_version = p_version, last_number = 0, last_adjustment_id = seal_id, updated_at = cellquota.now()
      WHERE campaign_id = s.campaign_id AND sku_id = s.sku_id;
  END LOOP;
  RETURN cellquota.fence_proof(p_version);
END $$;
-- +goose StatementEnd

-- recover_adjustment applies one adjustment that the books know and the shard lost, with the outcome that
-- it had. It answers the units that are missing for it: above 0 nothing was done. A repeat answers 0; one that
-- the shard decided otherwise is refused.
-- +goose StatementBegin
CREATE FUNCTION cellquota.recover_adjustment(p_cell text, p_version bigint, p_id text, p_campaign text, p_sku text, p_of bigint, p_number bigint,
  p_kind text, p_units int, p_outcome text) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE s cellquota.stock%ROWTYPE; was cellquota.adjustments%ROWTYPE; delta int := 0;
BEGIN
  PERFORM cellquota.lock_recovery(p_cell, p_version);
  SELECT * INTO s FROM cellquota.stock WHERE campaign_id = p_campaign AND sku_id = p_sku FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the rules of % are not here yet', p_campaign USING ERRCODE = 'CQ013';
  END IF;
  SELECT * INTO was FROM cellquota.adjustments WHERE adjustment_id = p_id;
  IF FOUND THEN
    IF (was.kind, was.outcome) IS DISTINCT FROM (p_kind, p_outcome) OR was.units <> (CASE WHEN p_outcome = 'APPLIED' THEN p_units ELSE 0 END) THEN
      RAISE EXCEPTION 'adjustment % was decided otherwise here: % of % units, %', p_id, was.kind, was.units, was.outcome USING ERRCODE = 'CQ002';
    END IF;
    RETURN 0;
  END IF;
  IF p_outcome = 'APPLIED' THEN
    delta := CASE WHEN p_kind = 'GRANT' THEN p_units ELSE -p_units END;
  END IF;
  IF s.available + delta < 0 THEN
    RETURN -(s.available + delta);
  END IF;
  INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, sealed_by, applied_at)
    VALUES (p_id, p_campaign, p_sku, CASE WHEN p_kind = 'SEAL' THEN p_of - 1 ELSE p_of END, p_number, p_kind, abs(delta), p_units, p_outcome,
      CASE WHEN p_kind = 'SEAL' THEN p_of END, cellquota.now());
  IF p_outcome <> 'APPLIED' THEN
    RETURN 0;
  END IF;
  INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
      before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
    VALUES (p_campaign, p_sku, p_kind, p_id, p_kind || ':' || p_id || ':1', delta, 0, 0,
      s.available, s.available + delta, s.reserved, s.reserved, s.confirmed, s.confirmed, s.version + 1, p_version, 'recovery', session_user, cellquota.now());
  UPDATE cellquota.stock SET granted = granted + delta, available = available + delta, version = version + 1, updated_at = cellquota.now()
    WHERE campaign_id = p_campaign AND sku_id = p_sku;
  RETURN 0;
END $$;
-- +goose StatementEnd

-- recover_messages lets the log be read again, once every adjustment stands. Idempotent.
-- +goose StatementBegin
CREATE FUNCTION cellquota.recover_messages(p_cell text, p_version bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
BEGIN
  PERFORM cellquota.lock_recovery(p_cell, p_version);
  UPDATE cellquota.recovery SET phase = 'MESSAGES' WHERE phase = 'UNITS';
END $$;
-- +goose StatementEnd

-- recover_finish ends a recovery whose log was read again, and answers the partitions that are not: above
-- 0 nothing was done. From then on messages below the last version that anybody saw are refused.
-- +goose StatementBegin
CREATE FUNCTION cellquota.recover_finish(p_cell text, p_version bigint) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE r cellquota.recovery%ROWTYPE; unread int;
BEGIN
  r := cellquota.lock_recovery(p_cell, p_version);
  IF r.phase = 'DONE' THEN
    RETURN 0;
  END IF;
  IF r.phase <> 'MESSAGES' THEN
    RAISE EXCEPTION 'the recovery is in phase %', r.phase USING ERRCODE = 'CQ002';
  END IF;
  SELECT count(*) INTO unread FROM cellquota.recovery_positions w LEFT JOIN cellquota.positions p USING (topic, partition)
    WHERE p.topic_id IS NULL OR (p.topic_id = w.topic_id AND p.next_offset < w.upto);
  IF unread > 0 THEN
    RETURN unread;
  END IF;
  UPDATE cellquota.fence SET messages_from = greatest(messages_from, r.last_seen), state_since = cellquota.now();
  UPDATE cellquota.stock s SET adjustment_version = p_version, updated_at = cellquota.now(), last_number = coalesce((SELECT max(number) FROM cellquota.adjustments a
    WHERE a.campaign_id = s.campaign_id AND a.sku_id = s.sku_id AND a.fence_version = p_version), 0);
  UPDATE cellquota.recovery SET phase = 'DONE', done_at = cellquota.now();
  RETURN 0;
END $$;
-- +goose StatementEnd

-- Whose a closing and an import is: the handover's operation and its taker. A control plane that was restored
-- counts its route versions anew; what an earlier handover closed under one is no answer to another.
ALTER TABLE cellquota.bucket_closings ADD COLUMN handover text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE cellquota.bucket_imports ADD COLUMN handover text COLLATE "C" NOT NULL DEFAULT '';
DROP FUNCTION cellquota.close_buckets(text, text, text, int, int, bigint, int); -- of step 4, which no release had
DROP FUNCTION cellquota.import_buckets(text, text, text, int, int, bigint, jsonb);

-- close_buckets knows its handover, and does not answer for a shard whose recovery is under way, nor for one that was fenced in
-- the midst of it: orders that were seen are missing, and their users would buy once more elsewhere.
-- +goose StatementBegin
CREATE FUNCTION cellquota.close_buckets(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint, p_handover text, p_wait_ms int)
  RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE; closed jsonb; newest bigint; whose text;
BEGIN
  BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text || 'ms', true);
    PERFORM pg_advisory_xact_lock(cellquota.lock_key());
    PERFORM set_config('lock_timeout', '0', true);
  EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'writers hold the shard for longer than % ms', p_wait_ms USING ERRCODE = 'CQ008';
  END;
  f := cellquota.require_cell(p_cell);
  IF f.state <> 'ACTIVE' AND EXISTS (SELECT FROM cellquota.recovery WHERE phase <> 'DONE') THEN
    RAISE EXCEPTION 'the shard is being recovered, who bought here is not known yet' USING ERRCODE = 'CQ002';
  END IF;
  SELECT ranges, handover INTO closed, whose FROM cellquota.bucket_closings
    WHERE (campaign_id, domain, bucket_from, bucket_to, route_version) = (p_campaign, p_domain, p_from, p_to, p_route_version);
  IF FOUND THEN
    IF whose <> p_handover THEN
      RAISE EXCEPTION 'route version % closed these buckets of % for %, not for %', p_route_version, p_campaign, whose, p_handover USING ERRCODE = 'CQ011';
    END IF;
    RETURN closed;
  END IF;
  SELECT max(moved_version) INTO newest FROM cellquota.buckets
    WHERE campaign_id = p_campaign AND domain = p_domain AND bucket_from <= p_to AND bucket_to >= p_from;
  IF newest >= p_route_version THEN
    RAISE EXCEPTION 'buckets of % were moved by route version %, % is not above it', p_campaign, newest, p_route_version USING ERRCODE = 'CQ011';
  END IF;
  PERFORM cellquota.cut_buckets(p_campaign, p_domain, p_from, p_to);
  WITH parts AS (
    UPDATE cellquota.buckets SET state = 'CLOSED', moved_version = p_route_version
    WHERE campaign_id = p_campaign AND domain = p_domain AND bucket_from >= p_from AND bucket_to <= p_to AND state = 'OPEN'
    RETURNING bucket_from, bucket_to
  ) SELECT jsonb_agg(jsonb_build_array(bucket_from, bucket_to) ORDER BY bucket_from) INTO closed FROM parts;
  IF closed IS NULL THEN
    RAISE EXCEPTION 'cell % has no open bucket of % in % to %', p_cell, p_campaign, p_from, p_to USING ERRCODE = 'CQ012';
  END IF;
  INSERT INTO cellquota.bucket_closings VALUES (p_campaign, p_domain, p_from, p_to, p_route_version, closed,
    coalesce((SELECT jsonb_agg(jsonb_build_object('topic', topic, 'topic_id', topic_id, 'partition', partition, 'next_offset', next_offset,
      'leader_epoch', leader_epoch) ORDER BY topic, partition) FROM cellquota.positions), '[]'), f.fence_version, cellquota.now(), p_handover);
  RETURN closed;
END $$;
-- +goose StatementEnd

-- import_buckets knows its handover.
-- +goose StatementBegin
CREATE FUNCTION cellquota.import_buckets(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint, p_handover text, p_ranges jsonb)
  RETURNS cellquota.bucket_imports
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE i cellquota.bucket_imports%ROWTYPE; r record; worst record;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('buckets/' || p_campaign, 0)); -- two that import at once
  i := cellquota.lock_import(p_cell, p_campaign, p_domain, p_from, p_to, p_route_version);
  IF i.campaign_id IS NOT NULL THEN
    IF i.handover <> p_handover THEN
      RAISE EXCEPTION 'route version % takes buckets of % in for %, not for %', p_route_version, p_campaign, i.handover, p_handover USING ERRCODE = 'CQ011';
    END IF;
    IF i.ranges <> p_ranges THEN
      RAISE EXCEPTION 'route version % takes in other buckets of %', p_route_version, p_campaign USING ERRCODE = 'CQ012';
    END IF;
    RETURN i;
  END IF;
  FOR r IN SELECT (e->>0)::int AS lo, (e->>1)::int AS hi FROM jsonb_array_elements(p_ranges) AS e LOOP
    SELECT bool_or(state <> 'CLOSED') AS used, max(moved_version) AS newest INTO worst FROM cellquota.buckets
      WHERE campaign_id = p_campaign AND domain = p_domain AND bucket_from <= r.hi AND bucket_to >= r.lo;
    IF worst.newest >= p_route_version THEN
      RAISE EXCEPTION 'buckets of % were moved by route version %, % is not above it', p_campaign, worst.newest, p_route_version USING ERRCODE = 'CQ011';
    END IF;
    IF worst.used THEN
      RAISE EXCEPTION 'cell % has buckets of % in % to % already', p_cell, p_campaign, r.lo, r.hi USING ERRCODE = 'CQ012';
    END IF;
    PERFORM cellquota.cut_buckets(p_campaign, p_domain, r.lo, r.hi);
    DELETE FROM cellquota.buckets WHERE campaign_id = p_campaign AND domain = p_domain AND bucket_from >= r.lo AND bucket_to <= r.hi;
    INSERT INTO cellquota.buckets VALUES (p_campaign, p_domain, r.lo, r.hi, 'IMPORTING', p_route_version);
  END LOOP;
  INSERT INTO cellquota.bucket_imports (campaign_id, domain, bucket_from, bucket_to, route_version, ranges, started_at, handover)
    VALUES (p_campaign, p_domain, p_from, p_to, p_route_version, p_ranges, cellquota.now(), p_handover) RETURNING * INTO i;
  RETURN i;
END $$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cellquota FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN -- grants.sql comes a moment later, and cells pay meanwhile
    GRANT SELECT ON cellquota.recovery, cellquota.recovery_positions, cellquota.recovery_fences TO cellquota_app;
  END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A shard is never migrated down (contract, section 1).
