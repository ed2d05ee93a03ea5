-- +goose Up
-- Handover of buckets between shards (architecture 5): closing them here with the positions of that
-- moment, taking them in with their buyers and answered requests, opening them. Only the fencer's role
-- changes a bucket row after the publish installed it. A program of step 3 runs on this schema: it is
-- refused nothing that it did, and rejects a carried buyer; of carried requests it knows nothing, so
-- buckets are handed to a cell when all its processes are of this step.
--
-- SQLSTATEs beside those of step 1: CQ010 two shards have an order of one user (a breach of I4), CQ011
-- the route version is not above what moved these buckets last, CQ012 the buckets are not in the state
-- that the verb needs, or a page does not follow the last one.

-- What was closed here, and how far each partition had been applied: a message that is consumed again,
-- after the shard went back in time, is judged by what held at its offset (architecture 4, REGRESSED).
CREATE TABLE cellquota.bucket_closings (
  campaign_id   text COLLATE "C" NOT NULL,
  domain        text COLLATE "C" NOT NULL,
  bucket_from   int NOT NULL CHECK (bucket_from BETWEEN 0 AND 4095),
  bucket_to     int NOT NULL CHECK (bucket_to BETWEEN bucket_from AND 4095),
  route_version bigint NOT NULL CHECK (route_version >= 2),
  ranges        jsonb NOT NULL, -- the parts that were owned: [[from, to], …]
  positions     jsonb NOT NULL,
  fence_version bigint NOT NULL,
  closed_at     timestamptz NOT NULL,
  PRIMARY KEY (campaign_id, domain, bucket_from, bucket_to, route_version)
);

-- What is being taken in, or was. The last keys that arrived are written with their page: a page whose
-- answer was lost is known by them, and whoever drives the handover goes on from them.
CREATE TABLE cellquota.bucket_imports (
  campaign_id    text COLLATE "C" NOT NULL,
  domain         text COLLATE "C" NOT NULL,
  bucket_from    int NOT NULL CHECK (bucket_from BETWEEN 0 AND 4095),
  bucket_to      int NOT NULL CHECK (bucket_to BETWEEN bucket_from AND 4095),
  route_version  bigint NOT NULL CHECK (route_version >= 2),
  ranges         jsonb NOT NULL,
  buyers_after   text[] COLLATE "C" NOT NULL DEFAULT '{}',
  buyers_done    boolean NOT NULL DEFAULT false,
  buyers         bigint NOT NULL DEFAULT 0,
  requests_after text[] COLLATE "C" NOT NULL DEFAULT '{}',
  requests_done  boolean NOT NULL DEFAULT false,
  requests       bigint NOT NULL DEFAULT 0,
  started_at     timestamptz NOT NULL,
  opened_at      timestamptz,
  PRIMARY KEY (campaign_id, domain, bucket_from, bucket_to, route_version)
);

-- Requests that another cell answered: a repeat gets the same answer here. Never REJECTED/MOVED, which
-- is no answer.
CREATE TABLE cellquota.carried_requests (
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  user_id        text COLLATE "C" NOT NULL,
  request_id     text COLLATE "C" NOT NULL,
  reservation_id text COLLATE "C" NOT NULL,
  quantity       int NOT NULL,
  fingerprint    text COLLATE "C" NOT NULL,
  outcome        text NOT NULL CHECK (outcome IN ('ORDERED', 'REJECTED', 'RELEASED')),
  reason         text NOT NULL DEFAULT '' CHECK (reason <> 'MOVED'),
  PRIMARY KEY (campaign_id, sku_id, user_id, request_id)
);
CREATE INDEX carried_by_reservation ON cellquota.carried_requests (reservation_id);

CREATE VIEW cellquota.v_bucket_closings AS SELECT campaign_id, domain, bucket_from, bucket_to, route_version, ranges, positions, fence_version, closed_at
  FROM cellquota.bucket_closings;
CREATE VIEW cellquota.v_bucket_imports AS SELECT campaign_id, domain, bucket_from, bucket_to, route_version, ranges, buyers, requests,
  buyers_done AND requests_done AS complete, started_at, opened_at FROM cellquota.bucket_imports;

-- ---------------------------------------------------------------------------------------------
-- cut_buckets splits the rows that the range cuts, so that each lies inside or outside. The caller has
-- locked the campaign's rows.
-- +goose StatementBegin
CREATE FUNCTION cellquota.cut_buckets(p_campaign text, p_domain text, p_from int, p_to int) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = cellquota, pg_temp AS $$
DECLARE at int; b cellquota.buckets%ROWTYPE;
BEGIN
  FOREACH at IN ARRAY ARRAY[p_from, p_to + 1] LOOP
    SELECT * INTO b FROM cellquota.buckets WHERE campaign_id = p_campaign AND domain = p_domain AND bucket_from < at AND bucket_to >= at;
    CONTINUE WHEN NOT FOUND;
    UPDATE cellquota.buckets SET bucket_to = at - 1 WHERE campaign_id = p_campaign AND domain = p_domain AND bucket_from = b.bucket_from;
    INSERT INTO cellquota.buckets (campaign_id, domain, bucket_from, bucket_to, state, moved_version)
      VALUES (p_campaign, p_domain, at, b.bucket_to, b.state, b.moved_version);
  END LOOP;
END $$;
-- +goose StatementEnd

-- require_cell locks the fence row against the fencer and answers it; the caller holds the lock of writers.
-- +goose StatementBegin
CREATE FUNCTION cellquota.require_cell(p_cell text) RETURNS cellquota.fence
LANGUAGE plpgsql VOLATILE SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE;
BEGIN
  SELECT * INTO f FROM cellquota.fence;
  IF NOT FOUND OR f.cell_id <> p_cell THEN
    RAISE EXCEPTION 'shard has no fence row of cell %', p_cell USING ERRCODE = 'CQ004';
  END IF;
  RETURN f;
END $$;
-- +goose StatementEnd

-- close_buckets closes the parts of a range that this shard owns and answers them: [[from, to], …].
-- Under the exclusive lock instead of the shared one, and in later statements: every order that was
-- begun before has committed and is read by the export, none is begun on the open row. Nobody's
-- backend is ended for it: writers that hold the lock for longer are CQ008, and it is tried again. A
-- repeat with the same range and route version changes nothing.
-- +goose StatementBegin
CREATE FUNCTION cellquota.close_buckets(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint, p_wait_ms int) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE; closed jsonb; newest bigint;
BEGIN
  BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text || 'ms', true);
    PERFORM pg_advisory_xact_lock(cellquota.lock_key());
    PERFORM set_config('lock_timeout', '0', true);
  EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'writers hold the shard for longer than % ms', p_wait_ms USING ERRCODE = 'CQ008';
  END;
  f := cellquota.require_cell(p_cell);
  SELECT ranges INTO closed FROM cellquota.bucket_closings
    WHERE (campaign_id, domain, bucket_from, bucket_to, route_version) = (p_campaign, p_domain, p_from, p_to, p_route_version);
  IF FOUND THEN
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
      'leader_epoch', leader_epoch) ORDER BY topic, partition) FROM cellquota.positions), '[]'), f.fence_version, cellquota.now());
  RETURN closed;
END $$;
-- +goose StatementEnd

-- lock_import begins every verb of a target: beside its writers, and never on a fenced shard. It
-- answers the import, locked; null fields when it was not begun.
-- +goose StatementBegin
CREATE FUNCTION cellquota.lock_import(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint) RETURNS cellquota.bucket_imports
LANGUAGE plpgsql VOLATILE SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE; i cellquota.bucket_imports%ROWTYPE;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(cellquota.lock_key());
  f := cellquota.require_cell(p_cell);
  IF f.state = 'FENCED' THEN
    RAISE EXCEPTION 'fence is FENCED, a target must be able to write' USING ERRCODE = 'CQ002';
  END IF;
  SELECT * INTO i FROM cellquota.bucket_imports
    WHERE (campaign_id, domain, bucket_from, bucket_to, route_version) = (p_campaign, p_domain, p_from, p_to, p_route_version) FOR UPDATE;
  RETURN i;
END $$;
-- +goose StatementEnd

-- import_buckets begins to take in what another shard closed, as IMPORTING: nobody gets an order there
-- yet. A repeat changes nothing. It answers the import.
-- +goose StatementBegin
CREATE FUNCTION cellquota.import_buckets(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint, p_ranges jsonb)
  RETURNS cellquota.bucket_imports
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE i cellquota.bucket_imports%ROWTYPE; r record; worst record;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('buckets/' || p_campaign, 0)); -- two that import at once
  i := cellquota.lock_import(p_cell, p_campaign, p_domain, p_from, p_to, p_route_version);
  IF i.campaign_id IS NOT NULL THEN
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
  INSERT INTO cellquota.bucket_imports (campaign_id, domain, bucket_from, bucket_to, route_version, ranges, started_at)
    VALUES (p_campaign, p_domain, p_from, p_to, p_route_version, p_ranges, cellquota.now()) RETURNING * INTO i;
  RETURN i;
END $$;
-- +goose StatementEnd

-- import_buyers takes one page in: the places of users with an order elsewhere, each with its effect
-- for the mirror. p_after is where the page begins, p_next where it ends. A page that arrived is known
-- by its end. A place that an order of another id has is a breach of I4: everything stops.
-- +goose StatementBegin
CREATE FUNCTION cellquota.import_buyers(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint,
  p_after text[], p_next text[], p_last boolean, p_scope text[], p_user text[], p_sku text[], p_reservation text[], p_effect bytea[])
  RETURNS cellquota.bucket_imports
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE i cellquota.bucket_imports%ROWTYPE; other record;
BEGIN
  i := cellquota.lock_import(p_cell, p_campaign, p_domain, p_from, p_to, p_route_version);
  IF i.buyers_after = p_next AND i.buyers_done = p_last THEN
    RETURN i;
  END IF;
  IF i.campaign_id IS NULL OR i.buyers_done OR i.buyers_after <> p_after THEN
    RAISE EXCEPTION 'a page of buyers of % does not follow the last one', p_campaign USING ERRCODE = 'CQ012';
  END IF;
  WITH page AS (
    SELECT * FROM unnest(p_scope, p_user, p_sku, p_reservation, p_effect) AS e(scope_key, user_id, sku_id, reservation_id, effect)
  ), fresh AS (
    INSERT INTO cellquota.buyers (campaign_id, scope_key, user_id, origin, reservation_id, created_at)
    SELECT p_campaign, scope_key, user_id, 'CARRIED', reservation_id, cellquota.now() FROM page ORDER BY scope_key, user_id
    ON CONFLICT (campaign_id, scope_key, user_id) DO NOTHING RETURNING scope_key, user_id
  )
  INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at)
  SELECT 'MIRROR', 'req/' || p.reservation_id, 'carried', p_campaign, p.sku_id, p.effect, cellquota.now()
  FROM page p JOIN fresh n ON n.scope_key = p.scope_key AND n.user_id = p.user_id
  WHERE p.sku_id <> '' AND EXISTS (SELECT FROM cellquota.mirrors m WHERE m.campaign_id = p_campaign AND m.scope_key = p.scope_key);
  SELECT b.reservation_id AS has, e.reservation_id AS comes INTO other FROM unnest(p_scope, p_user, p_reservation) AS e(scope_key, user_id, reservation_id)
    JOIN cellquota.buyers b ON b.campaign_id = p_campaign AND b.scope_key = e.scope_key AND b.user_id = e.user_id
    WHERE b.reservation_id <> e.reservation_id LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'one user has reservation % here and % elsewhere', other.has, other.comes USING ERRCODE = 'CQ010';
  END IF;
  UPDATE cellquota.bucket_imports SET buyers_after = p_next, buyers_done = p_last, buyers = buyers + cardinality(p_user)
    WHERE (campaign_id, domain, bucket_from, bucket_to, route_version) = (p_campaign, p_domain, p_from, p_to, p_route_version) RETURNING * INTO i;
  RETURN i;
END $$;
-- +goose StatementEnd

-- import_requests takes one page of answered requests in, likewise.
-- +goose StatementBegin
CREATE FUNCTION cellquota.import_requests(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint,
  p_after text[], p_next text[], p_last boolean, p_sku text[], p_user text[], p_request text[], p_reservation text[], p_quantity int[],
  p_fingerprint text[], p_outcome text[], p_reason text[])
  RETURNS cellquota.bucket_imports
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE i cellquota.bucket_imports%ROWTYPE;
BEGIN
  i := cellquota.lock_import(p_cell, p_campaign, p_domain, p_from, p_to, p_route_version);
  IF i.requests_after = p_next AND i.requests_done = p_last THEN
    RETURN i;
  END IF;
  IF i.campaign_id IS NULL OR i.requests_done OR i.requests_after <> p_after THEN
    RAISE EXCEPTION 'a page of requests of % does not follow the last one', p_campaign USING ERRCODE = 'CQ012';
  END IF;
  INSERT INTO cellquota.carried_requests
  SELECT p_campaign, * FROM unnest(p_sku, p_user, p_request, p_reservation, p_quantity, p_fingerprint, p_outcome, p_reason)
  ON CONFLICT (campaign_id, sku_id, user_id, request_id) DO NOTHING; -- the bucket was here before, and the answer is the same
  UPDATE cellquota.bucket_imports SET requests_after = p_next, requests_done = p_last, requests = requests + cardinality(p_user)
    WHERE (campaign_id, domain, bucket_from, bucket_to, route_version) = (p_campaign, p_domain, p_from, p_to, p_route_version) RETURNING * INTO i;
  RETURN i;
END $$;
-- +goose StatementEnd

-- open_buckets lets what was taken in whole sell here. A repeat changes nothing.
-- +goose StatementBegin
CREATE FUNCTION cellquota.open_buckets(p_cell text, p_campaign text, p_domain text, p_from int, p_to int, p_route_version bigint) RETURNS cellquota.bucket_imports
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE i cellquota.bucket_imports%ROWTYPE; n int;
BEGIN
  i := cellquota.lock_import(p_cell, p_campaign, p_domain, p_from, p_to, p_route_version);
  IF i.opened_at IS NOT NULL THEN
    RETURN i;
  END IF;
  IF i.campaign_id IS NULL OR NOT i.buyers_done OR NOT i.requests_done THEN
    RAISE EXCEPTION 'buckets of % are not all here yet', p_campaign USING ERRCODE = 'CQ012';
  END IF;
  UPDATE cellquota.buckets b SET state = 'OPEN' FROM jsonb_array_elements(i.ranges) AS e
    WHERE b.campaign_id = p_campaign AND b.domain = p_domain AND b.bucket_from = (e->>0)::int AND b.bucket_to = (e->>1)::int
      AND b.state = 'IMPORTING' AND b.moved_version = p_route_version;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> jsonb_array_length(i.ranges) THEN
    RAISE EXCEPTION '% of % ranges of % are IMPORTING', n, jsonb_array_length(i.ranges), p_campaign USING ERRCODE = 'CQ012';
  END IF;
  UPDATE cellquota.bucket_imports SET opened_at = cellquota.now()
    WHERE (campaign_id, domain, bucket_from, bucket_to, route_version) = (p_campaign, p_domain, p_from, p_to, p_route_version) RETURNING * INTO i;
  RETURN i;
END $$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cellquota FROM PUBLIC;
-- Cells write while this runs, and grants.sql comes a moment later. Orders of this step's programs read it.
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN
    GRANT SELECT ON cellquota.carried_requests, cellquota.bucket_closings, cellquota.bucket_imports TO cellquota_app;
  END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A shard is never migrated down (contract, section 1).
