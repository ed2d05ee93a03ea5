-- +goose Up
-- The ledger in one partition per campaign, the rows of SKUs in TOKEN mode moved by it, and what the
-- outbox is looked up by as it grows. A program of step 2 runs on this schema: its statements name the
-- parent, and what is new here is done by triggers.

-- Writers are kept out while this step runs, as a fence keeps them out: none of them holds a table that
-- is wanted here (a deadlock, found under a sale), and no campaign is installed between the count of the
-- stock rows and the trigger that follows them (its entries would have no partition for ever).
SELECT pg_advisory_xact_lock(cellquota.lock_key());
LOCK TABLE cellquota.stock IN SHARE ROW EXCLUSIVE MODE;

-- ---------------------------------------------------------------------------------------------
-- Partitions. They lie in a schema of their own, where the cell's role may do nothing: it writes
-- through the parent only. The name of a partition is its campaign's id.
CREATE SCHEMA cellquota_ledger;
REVOKE ALL ON SCHEMA cellquota_ledger FROM PUBLIC;

-- What is there becomes one partition, for the campaigns that have a stock row or an entry by now: no
-- row is copied, no entry changes its id. It costs two reads of the table and one index.
ALTER TABLE cellquota.ledger SET SCHEMA cellquota_ledger;
ALTER TABLE cellquota_ledger.ledger RENAME TO before_00003;
ALTER TRIGGER ledger_is_immutable ON cellquota_ledger.before_00003 RENAME TO part_is_immutable;
ALTER TRIGGER ledger_is_not_truncated ON cellquota_ledger.before_00003 RENAME TO part_is_not_truncated;
ALTER TABLE cellquota_ledger.before_00003 ALTER COLUMN entry_id DROP IDENTITY;
ALTER TABLE cellquota_ledger.before_00003 DROP CONSTRAINT ledger_pkey, ADD CONSTRAINT ledger_pkey PRIMARY KEY (entry_id, campaign_id);

-- A unique key of a partitioned table has its partition's column in it: campaign_id is part of both.
CREATE TABLE cellquota.ledger (
  entry_id         bigint GENERATED ALWAYS AS IDENTITY,
  campaign_id      text COLLATE "C" NOT NULL,
  sku_id           text COLLATE "C" NOT NULL,
  action           text NOT NULL CHECK (action IN ('GRANT', 'RETURN', 'SEAL', 'RESERVE', 'CONFIRM', 'RELEASE', 'RESTOCK', 'REVERSAL')),
  business_no      text COLLATE "C" NOT NULL,
  idempotency_key  text COLLATE "C" NOT NULL,
  delta_available  int NOT NULL,
  delta_reserved   int NOT NULL,
  delta_confirmed  int NOT NULL,
  before_available int NOT NULL,
  after_available  int NOT NULL,
  before_reserved  int NOT NULL,
  after_reserved   int NOT NULL,
  before_confirmed int NOT NULL,
  after_confirmed  int NOT NULL,
  stock_version    bigint NOT NULL,
  fence_version    bigint NOT NULL,
  source           text NOT NULL,
  actor            text NOT NULL,
  reverses         bigint,
  created_at       timestamptz NOT NULL,
  CONSTRAINT ledger_pkey PRIMARY KEY (entry_id, campaign_id),
  CONSTRAINT ledger_once_per_action UNIQUE (campaign_id, sku_id, idempotency_key),
  CONSTRAINT i5_available CHECK (after_available = before_available + delta_available AND after_available >= 0 AND before_available >= 0),
  CONSTRAINT i5_reserved CHECK (after_reserved = before_reserved + delta_reserved AND after_reserved >= 0 AND before_reserved >= 0),
  CONSTRAINT i5_confirmed CHECK (after_confirmed = before_confirmed + delta_confirmed AND after_confirmed >= 0 AND before_confirmed >= 0)
) PARTITION BY LIST (campaign_id);
CREATE INDEX ledger_by_business_no ON cellquota.ledger (business_no);
CREATE INDEX ledger_by_sku ON cellquota.ledger (campaign_id, sku_id, entry_id);
CREATE TRIGGER ledger_is_immutable BEFORE UPDATE OR DELETE ON cellquota.ledger
  FOR EACH ROW EXECUTE FUNCTION cellquota.refuse_change();
CREATE TRIGGER ledger_is_not_truncated BEFORE TRUNCATE ON cellquota.ledger
  FOR EACH STATEMENT EXECUTE FUNCTION cellquota.refuse_change();

CREATE OR REPLACE VIEW cellquota.v_ledger AS SELECT entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
  before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, source, actor, reverses, created_at FROM cellquota.ledger;
CREATE OR REPLACE VIEW cellquota.v_ledger_writers AS SELECT entry_id, campaign_id, sku_id, action, business_no, stock_version, fence_version, created_at FROM cellquota.ledger;

-- Which partition has a campaign's entries. Nobody detaches one yet: an operator may, once all its
-- campaigns are settled, and it is immutable then too.
CREATE TABLE cellquota.ledger_parts (
  campaign_id text COLLATE "C" PRIMARY KEY,
  part        text NOT NULL,
  since       timestamptz NOT NULL
);

-- +goose StatementBegin
DO $$
DECLARE campaigns text; newest bigint;
BEGIN
  INSERT INTO cellquota.ledger_parts
    SELECT campaign_id, 'before_00003', cellquota.now() FROM
      (SELECT campaign_id FROM cellquota.stock UNION SELECT campaign_id FROM cellquota_ledger.before_00003) c;
  SELECT string_agg(quote_literal(campaign_id), ', ') INTO campaigns FROM cellquota.ledger_parts;
  SELECT max(entry_id) INTO newest FROM cellquota_ledger.before_00003;
  IF campaigns IS NULL THEN
    DROP TABLE cellquota_ledger.before_00003;
  ELSE
    EXECUTE 'ALTER TABLE cellquota.ledger ATTACH PARTITION cellquota_ledger.before_00003 FOR VALUES IN (' || campaigns || ')';
  END IF;
  IF newest IS NOT NULL THEN
    PERFORM setval(pg_get_serial_sequence('cellquota.ledger', 'entry_id'), newest);
  END IF;
END $$;
-- +goose StatementEnd

-- A campaign's partition comes with its first stock row, which every entry has: whichever program
-- installs the rules. It is made beside the ledger and attached, so that sales of other campaigns,
-- which hold the parent, are not waited for (CREATE … PARTITION OF would).
-- +goose StatementBegin
CREATE FUNCTION cellquota.add_ledger_parts() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE c text;
BEGIN
  FOR c IN SELECT DISTINCT campaign_id FROM added ORDER BY campaign_id LOOP
    IF octet_length(c) > 63 THEN
      RAISE EXCEPTION 'campaign_id % has more than 63 bytes', c USING ERRCODE = '22001';
    END IF;
    -- Two that install one campaign at once: the second waits here, and finds it done.
    INSERT INTO cellquota.ledger_parts VALUES (c, c, cellquota.now()) ON CONFLICT DO NOTHING;
    CONTINUE WHEN NOT FOUND;
    EXECUTE format('CREATE TABLE cellquota_ledger.%I (LIKE cellquota.ledger INCLUDING CONSTRAINTS INCLUDING INDEXES)', c);
    -- Of its own: what it has from the ledger goes when it is detached, and it is immutable then too.
    EXECUTE format('CREATE TRIGGER part_is_immutable BEFORE UPDATE OR DELETE ON cellquota_ledger.%I FOR EACH ROW EXECUTE FUNCTION cellquota.refuse_change()', c);
    EXECUTE format('CREATE TRIGGER part_is_not_truncated BEFORE TRUNCATE ON cellquota_ledger.%I FOR EACH STATEMENT EXECUTE FUNCTION cellquota.refuse_change()', c);
    EXECUTE format('ALTER TABLE cellquota.ledger ATTACH PARTITION cellquota_ledger.%I FOR VALUES IN (%L)', c, c);
  END LOOP;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER stock_has_a_ledger AFTER INSERT ON cellquota.stock
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION cellquota.add_ledger_parts();

CREATE VIEW cellquota.v_ledger_parts AS SELECT campaign_id, part, since FROM cellquota.ledger_parts;

-- ---------------------------------------------------------------------------------------------
-- TOKEN mode. FREE rows are the available units, BOUND the reserved, SOLD the confirmed; SEALED ones
-- have left this cell (returned, or sealed by a fence) and never come back: what comes back by a later
-- grant is minted under that grant.
ALTER TABLE cellquota.tokens ADD CONSTRAINT token_is_held CHECK ((state IN ('BOUND', 'SOLD')) = (reservation_id IS NOT NULL)),
  ADD CONSTRAINT token_has_an_order CHECK ((reservation_id IS NULL) = (order_id IS NULL));
CREATE INDEX tokens_free ON cellquota.tokens (campaign_id, sku_id, token_id) WHERE state = 'FREE';
CREATE INDEX tokens_of_reservation ON cellquota.tokens (reservation_id) WHERE reservation_id IS NOT NULL;
CREATE INDEX skus_of_tokens ON cellquota.skus (campaign_id, sku_id) WHERE inventory_mode = 'TOKEN';

-- order_of is the order of a reservation: both ids are one digest (the ids of package internal/ids).
-- +goose StatementBegin
CREATE FUNCTION cellquota.order_of(p_reservation text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT regexp_replace(p_reservation, '\.r([^.]*)$', '.o\1')
$$;
-- +goose StatementEnd

-- holder_of is the reservation whose units an entry moves; null: it moves units of nobody.
-- +goose StatementBegin
CREATE FUNCTION cellquota.holder_of(p_action text, p_business_no text, p_reverses bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = cellquota, pg_temp AS $$
DECLARE l record;
BEGIN
  IF p_action IN ('RESERVE', 'CONFIRM', 'RELEASE') THEN
    RETURN p_business_no;
  ELSIF p_action = 'RESTOCK' THEN -- the payment names it too, where a program of step 2 tells of a refund that nobody asked for
    RETURN (SELECT o.reservation_id FROM cellquota.orders o WHERE o.order_id = coalesce(
      (SELECT f.order_id FROM cellquota.refunds f WHERE f.refund_id = p_business_no),
      (SELECT p.order_id FROM cellquota.payments p WHERE p.refund_id = p_business_no LIMIT 1)));
  ELSIF p_action = 'REVERSAL' THEN
    SELECT action, business_no, reverses INTO l FROM cellquota.ledger WHERE entry_id = p_reverses;
    RETURN CASE WHEN FOUND THEN cellquota.holder_of(l.action, l.business_no, l.reverses) END;
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- note_tokens records that rows and counters of a SKU do not fit, once until somebody has repaired it.
-- +goose StatementBegin
CREATE FUNCTION cellquota.note_tokens(p_id text, p_campaign text, p_sku text, p_reservation text, p_units int) RETURNS void
LANGUAGE sql VOLATILE SET search_path = cellquota, pg_temp AS $$
  INSERT INTO cellquota.findings AS f (finding_id, kind, campaign_id, sku_id, reservation_id, units, state, found_at)
  VALUES ('tokens.' || p_id, 'QUANTITY_MISMATCH', p_campaign, p_sku, coalesce(p_reservation, ''), p_units, 'OPEN', cellquota.now())
  ON CONFLICT (finding_id) DO UPDATE SET state = 'OPEN', units = excluded.units, found_at = excluded.found_at WHERE f.state = 'REPAIRED'
$$;
-- +goose StatementEnd

-- move_tokens carries every ledger entry of a SKU in TOKEN mode out on its rows, in the entry's own
-- statement. Nobody else may write them, and an entry is written under its stock row's lock, so the
-- rows are only ever touched under it. By the signs of an entry's deltas:
--
--   available  reserved  confirmed   rows                                   actions
--       +                            n minted as FREE                       GRANT
--       -                            n FREE → SEALED                        RETURN, SEAL
--       -          +                 n FREE → BOUND to the reservation      RESERVE
--                  -         +       its BOUND → SOLD                       CONFIRM
--       +          -                 its BOUND → FREE                       RELEASE
--       +                    -       its SOLD → FREE                        RESTOCK
--
-- and a REVERSAL likewise, for the reservation of the entry that it reverses. Rows that are missing:
-- what takes FREE ones is refused (no order without its token); the rest stands, because money and
-- fence are facts, and is a finding.
-- +goose StatementBegin
CREATE FUNCTION cellquota.move_tokens() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = cellquota, pg_temp SET enable_hashjoin = on SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE e record; got bigint; wanted bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM cellquota.skus WHERE inventory_mode = 'TOKEN') THEN
    RETURN NULL; -- all that a shard of counters pays
  END IF;

  -- FREE rows for reservations: in the order of the entries, each takes as many as it reserves.
  WITH w AS MATERIALIZED (
    SELECT a.campaign_id, a.sku_id, cellquota.holder_of(a.action, a.business_no, a.reverses) AS holder, -a.delta_available AS n,
      CASE WHEN a.delta_reserved > 0 THEN 'BOUND' ELSE 'SOLD' END AS dst,
      (sum(-a.delta_available) OVER (PARTITION BY a.campaign_id, a.sku_id ORDER BY a.stock_version))::bigint AS upto
    FROM added a JOIN cellquota.skus s ON s.campaign_id = a.campaign_id AND s.sku_id = a.sku_id AND s.inventory_mode = 'TOKEN'
    WHERE a.delta_available < 0 AND (a.delta_reserved > 0 OR a.delta_confirmed > 0)
  ), places AS (
    SELECT campaign_id, sku_id, holder, dst, k FROM w, generate_series(upto - n + 1, upto) AS k
  ), free AS (
    SELECT f.campaign_id, f.sku_id, f.token_id, f.k FROM (SELECT campaign_id, sku_id, max(upto) AS n FROM w GROUP BY campaign_id, sku_id) total,
      LATERAL (SELECT t.campaign_id, t.sku_id, t.token_id, row_number() OVER (ORDER BY t.token_id) AS k FROM cellquota.tokens t
        WHERE t.campaign_id = total.campaign_id AND t.sku_id = total.sku_id AND t.state = 'FREE' ORDER BY t.token_id LIMIT total.n) f
  ), moved AS (
    UPDATE cellquota.tokens t SET state = p.dst, reservation_id = p.holder, order_id = cellquota.order_of(p.holder)
    FROM free f JOIN places p ON p.campaign_id = f.campaign_id AND p.sku_id = f.sku_id AND p.k = f.k
    WHERE t.token_id = f.token_id RETURNING 1
  ) SELECT (SELECT count(*) FROM moved), (SELECT coalesce(sum(n), 0) FROM w) INTO got, wanted;
  IF got <> wanted THEN
    RAISE EXCEPTION 'TOKEN mode: % units are to be reserved and % of them have a free row', wanted, got USING ERRCODE = 'CQ009';
  END IF;

  -- Rows of a reservation.
  WITH w AS MATERIALIZED (
    SELECT a.campaign_id, a.sku_id, a.action, a.business_no, cellquota.holder_of(a.action, a.business_no, a.reverses) AS holder,
      CASE WHEN a.delta_reserved < 0 THEN 'BOUND' ELSE 'SOLD' END AS src,
      CASE WHEN a.delta_available > 0 THEN 'FREE' WHEN a.delta_reserved > 0 THEN 'BOUND' WHEN a.delta_confirmed > 0 THEN 'SOLD' ELSE 'SEALED' END AS dst,
      -least(a.delta_reserved, a.delta_confirmed) AS n
    FROM added a JOIN cellquota.skus s ON s.campaign_id = a.campaign_id AND s.sku_id = a.sku_id AND s.inventory_mode = 'TOKEN'
    WHERE a.delta_available >= 0 AND (a.delta_reserved < 0 OR a.delta_confirmed < 0)
  ), moved AS (
    UPDATE cellquota.tokens t SET state = w.dst,
      reservation_id = CASE WHEN w.dst IN ('BOUND', 'SOLD') THEN t.reservation_id END, order_id = CASE WHEN w.dst IN ('BOUND', 'SOLD') THEN t.order_id END
    FROM w WHERE t.reservation_id = w.holder AND t.campaign_id = w.campaign_id AND t.sku_id = w.sku_id AND t.state = w.src
    RETURNING w.action, w.business_no
  ), counted AS (
    SELECT action, business_no, count(*) AS n FROM moved GROUP BY action, business_no
  ) SELECT count(cellquota.note_tokens(w.action || '.' || w.business_no, w.campaign_id, w.sku_id, w.holder, (w.n - coalesce(c.n, 0))::int)) INTO got
    FROM w LEFT JOIN counted c ON c.action = w.action AND c.business_no = w.business_no WHERE coalesce(c.n, 0) <> w.n;

  -- Units that come to the cell, or leave it.
  FOR e IN SELECT a.campaign_id, a.sku_id, a.action, a.business_no, a.delta_available AS n
    FROM added a JOIN cellquota.skus s ON s.campaign_id = a.campaign_id AND s.sku_id = a.sku_id AND s.inventory_mode = 'TOKEN'
    WHERE a.delta_available <> 0 AND a.delta_reserved = 0 AND a.delta_confirmed = 0
  LOOP
    IF e.n > 0 THEN -- a serial is derived from its grant: the same grant applied anew, after the shard went back in time, mints the same
      INSERT INTO cellquota.tokens (token_id, campaign_id, sku_id, state)
      SELECT (SELECT cell_id FROM cellquota.fence) || '.t' || left(encode(sha256(convert_to(e.campaign_id || '/' || e.sku_id || '/' || e.business_no, 'UTF8')), 'hex'), 20)
        || '-' || lpad(k::text, 6, '0'), e.campaign_id, e.sku_id, 'FREE' FROM generate_series(1, e.n) AS k;
      CONTINUE;
    END IF;
    UPDATE cellquota.tokens t SET state = 'SEALED' FROM (SELECT token_id FROM cellquota.tokens
      WHERE campaign_id = e.campaign_id AND sku_id = e.sku_id AND state = 'FREE' ORDER BY token_id DESC LIMIT -e.n) f WHERE t.token_id = f.token_id;
    GET DIAGNOSTICS got = ROW_COUNT;
    IF got <> -e.n AND e.action <> 'SEAL' THEN
      RAISE EXCEPTION 'TOKEN mode: % units are to leave and % of them have a free row', -e.n, got USING ERRCODE = 'CQ009';
    ELSIF got <> -e.n THEN
      PERFORM cellquota.note_tokens(e.action || '.' || e.business_no, e.campaign_id, e.sku_id, NULL, (-e.n - got)::int);
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_moves_tokens AFTER INSERT ON cellquota.ledger
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION cellquota.move_tokens();

-- ---------------------------------------------------------------------------------------------
-- The outbox, as it grows. Every row of an aggregate, whatever its state: what the shard decided of a
-- reservation is looked up by it. It serves the claim's look at earlier rows as well.
CREATE INDEX outbox_of_aggregate ON cellquota.outbox (aggregate, outbox_id);
DROP INDEX cellquota.outbox_pending_of_aggregate;

-- ---------------------------------------------------------------------------------------------
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cellquota FROM PUBLIC;
-- Cells write while this runs, and grants.sql comes a moment later: the parent is a new table.
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN
    GRANT SELECT, INSERT ON cellquota.ledger TO cellquota_app;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_fencer') THEN
    GRANT SELECT ON cellquota.ledger TO cellquota_fencer;
  END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A shard is never migrated down (contract, section 1).
