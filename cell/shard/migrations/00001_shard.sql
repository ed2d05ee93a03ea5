-- +goose Up
-- The shard of one cell: what is true about stock, orders and payments. Everything else is a copy.
-- Words are those of the glossary. Times are timestamptz by cellquota.now(); texts are compared
-- byte for byte (COLLATE "C" on every id).

CREATE SCHEMA IF NOT EXISTS cellquota;

-- The shard's clock. Statement time would stop inside a long transaction (K66); a test's schema may
-- replace this function to own the clock.
-- +goose StatementBegin
CREATE FUNCTION cellquota.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;
-- +goose StatementEnd

-- An amount as people write it: at least two digits after the point, no further zeros.
-- +goose StatementBegin
CREATE FUNCTION cellquota.amount_text(p numeric) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN scale(trim_scale(p)) < 2 THEN round(p, 2) ELSE trim_scale(p) END::text
$$;
-- +goose StatementEnd

-- One key for the whole shard: writers take it shared, the fencer exclusively.
-- +goose StatementBegin
CREATE FUNCTION cellquota.lock_key() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 4851379024617::bigint $$;
-- +goose StatementEnd

-- The fence: who may write. Changed only by the functions at the end of this file.
CREATE TABLE cellquota.fence (
  one            boolean PRIMARY KEY DEFAULT true CHECK (one),
  cell_id        text COLLATE "C" NOT NULL,
  fence_version  bigint NOT NULL CHECK (fence_version >= 1),
  messages_from  bigint NOT NULL CHECK (messages_from >= 1 AND messages_from <= fence_version),
  state          text NOT NULL CHECK (state IN ('ACTIVE', 'SETTLE_ONLY', 'FENCED')),
  instance_group text COLLATE "C" NOT NULL,
  state_since    timestamptz NOT NULL,
  fenced_at      timestamptz,
  reason         text NOT NULL DEFAULT ''
);

-- Every change of the fence, so that I8 can be checked afterwards: a row written after at by a
-- holder of a lower version is a breach.
CREATE TABLE cellquota.fence_history (
  fence_version bigint NOT NULL,
  state         text NOT NULL,
  at            timestamptz NOT NULL,
  reason        text NOT NULL,
  PRIMARY KEY (fence_version, state)
);

-- The highest control-plane term seen. The cell may only raise it, by raise_term.
CREATE TABLE cellquota.term (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  term_count bigint NOT NULL CHECK (term_count >= 0),
  term_id    text COLLATE "C" NOT NULL
);
INSERT INTO cellquota.term (term_count, term_id) VALUES (0, '');

-- Liveness of writes, for the closer: writable_since is when writes came back after a gap.
CREATE TABLE cellquota.heartbeat (
  one            boolean PRIMARY KEY DEFAULT true CHECK (one),
  written_at     timestamptz NOT NULL,
  writable_since timestamptz NOT NULL
);

-- Rules of campaigns as the control plane sent them; rules holds cellquota.v1.CampaignRules.
CREATE TABLE cellquota.campaigns (
  campaign_id    text COLLATE "C" PRIMARY KEY,
  version        bigint NOT NULL,
  state          text NOT NULL CHECK (state IN ('PUBLISHING', 'PUBLISHED', 'PAUSED', 'CLOSED', 'SETTLED')),
  open_at        timestamptz NOT NULL,
  close_at       timestamptz NOT NULL,
  purchase_scope text NOT NULL CHECK (purchase_scope IN ('SKU', 'CAMPAIGN')),
  reservation_ttl interval NOT NULL,
  rules          bytea NOT NULL,
  updated_at     timestamptz NOT NULL,
  CHECK (open_at < close_at)
);
CREATE TABLE cellquota.skus (
  campaign_id text COLLATE "C" NOT NULL REFERENCES cellquota.campaigns,
  sku_id      text COLLATE "C" NOT NULL,
  amount      numeric(18, 4) NOT NULL CHECK (amount >= 0),
  currency    text NOT NULL,
  inventory_mode text NOT NULL CHECK (inventory_mode IN ('COUNTER', 'TOKEN')),
  paused      boolean NOT NULL DEFAULT false,
  final       boolean NOT NULL DEFAULT false,
  PRIMARY KEY (campaign_id, sku_id)
);

-- Which users may get an order here (architecture 5). Installed once from the publish; afterwards
-- only a handover changes it.
CREATE TABLE cellquota.buckets (
  campaign_id   text COLLATE "C" NOT NULL,
  domain        text COLLATE "C" NOT NULL,
  bucket_from   int NOT NULL CHECK (bucket_from BETWEEN 0 AND 4095),
  bucket_to     int NOT NULL CHECK (bucket_to BETWEEN 0 AND 4095),
  state         text NOT NULL CHECK (state IN ('OPEN', 'CLOSED', 'IMPORTING')),
  moved_version bigint NOT NULL,
  CHECK (bucket_from <= bucket_to),
  PRIMARY KEY (campaign_id, domain, bucket_from)
);

-- The stock row: I2 is a constraint, not a hope.
CREATE TABLE cellquota.stock (
  campaign_id text COLLATE "C" NOT NULL,
  sku_id      text COLLATE "C" NOT NULL,
  granted     int NOT NULL DEFAULT 0 CHECK (granted BETWEEN 0 AND 1000000000),
  available   int NOT NULL DEFAULT 0 CHECK (available >= 0),
  reserved    int NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  confirmed   int NOT NULL DEFAULT 0 CHECK (confirmed >= 0),
  released    bigint NOT NULL DEFAULT 0 CHECK (released >= 0),
  version     bigint NOT NULL DEFAULT 0,
  adjustment_version bigint NOT NULL DEFAULT 0,
  last_number        bigint NOT NULL DEFAULT 0,
  last_adjustment_id text COLLATE "C" NOT NULL DEFAULT '',
  book_record_id     text COLLATE "C" NOT NULL DEFAULT '',
  updated_at  timestamptz NOT NULL,
  PRIMARY KEY (campaign_id, sku_id),
  CONSTRAINT i2_granted_is_the_sum CHECK (granted = available + reserved + confirmed)
);

-- Numbered adjustments. A SEAL has no number; it ends its version.
CREATE TABLE cellquota.adjustments (
  adjustment_id text COLLATE "C" PRIMARY KEY,
  campaign_id   text COLLATE "C" NOT NULL,
  sku_id        text COLLATE "C" NOT NULL,
  fence_version bigint NOT NULL,
  number        bigint CHECK (number >= 1),
  kind          text NOT NULL CHECK (kind IN ('GRANT', 'RETURN', 'SEAL')),
  units         int NOT NULL CHECK (units >= 0),
  -- what the order asked for, to tell a repeat from another adjustment under the same id
  asked         int NOT NULL DEFAULT 0 CHECK (asked >= 0),
  outcome       text NOT NULL CHECK (outcome IN ('APPLIED', 'REFUSED', 'VOIDED')),
  sealed_by     bigint,
  applied_at    timestamptz NOT NULL,
  CHECK ((kind = 'SEAL') = (number IS NULL)),
  CHECK ((kind = 'SEAL') = (sealed_by IS NOT NULL)),
  CHECK (outcome = 'APPLIED' OR units = 0),
  CONSTRAINT adjustment_numbers_are_used_once UNIQUE (campaign_id, sku_id, fence_version, number)
);

-- One order per (campaign, purchase scope, user) in this shard, for the life of the campaign (I4).
-- scope_key is the SKU, or '*' for the scope CAMPAIGN.
CREATE TABLE cellquota.buyers (
  campaign_id    text COLLATE "C" NOT NULL,
  scope_key      text COLLATE "C" NOT NULL,
  user_id        text COLLATE "C" NOT NULL,
  origin         text NOT NULL CHECK (origin IN ('OWN', 'CARRIED')),
  reservation_id text COLLATE "C" NOT NULL,
  created_at     timestamptz NOT NULL,
  PRIMARY KEY (campaign_id, scope_key, user_id)
);

-- What became of every message.
CREATE TABLE cellquota.inbox (
  event_id       text COLLATE "C" PRIMARY KEY,
  reservation_id text COLLATE "C" NOT NULL,
  request_id     text COLLATE "C" NOT NULL,
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  user_id        text COLLATE "C" NOT NULL,
  quantity       int NOT NULL,
  outcome        text NOT NULL CHECK (outcome IN ('ORDERED', 'REJECTED', 'RELEASED', 'PARKED')),
  reason         text NOT NULL DEFAULT '',
  fingerprint    text COLLATE "C" NOT NULL DEFAULT '',
  topic          text COLLATE "C" NOT NULL,
  partition      int NOT NULL,
  kafka_offset   bigint NOT NULL,
  fence_version  bigint NOT NULL,
  build_count    bigint NOT NULL,
  written_under  bigint NOT NULL,
  admitted_at    timestamptz NOT NULL,
  received_at    timestamptz NOT NULL
);
CREATE INDEX inbox_by_request ON cellquota.inbox (campaign_id, sku_id, user_id, request_id);

-- Where each partition goes on. (topic id, partition, offset, leader epoch); kept here, so that a
-- shard that loses its tail rewinds its consumer with it.
CREATE TABLE cellquota.positions (
  topic        text COLLATE "C" NOT NULL,
  partition    int NOT NULL,
  topic_id     text COLLATE "C" NOT NULL,
  next_offset  bigint NOT NULL CHECK (next_offset >= 0),
  leader_epoch int NOT NULL,
  updated_at   timestamptz NOT NULL,
  PRIMARY KEY (topic, partition)
);

CREATE TABLE cellquota.reservations (
  reservation_id text COLLATE "C" PRIMARY KEY,
  request_id     text COLLATE "C" NOT NULL,
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  user_id        text COLLATE "C" NOT NULL,
  quantity       int NOT NULL CHECK (quantity >= 1),
  state          text NOT NULL CHECK (state IN ('RESERVED', 'CONFIRMED', 'RELEASED', 'MANUAL_REVIEW')),
  reason         text NOT NULL DEFAULT '',
  fence_version  bigint NOT NULL,
  build_count    bigint NOT NULL,
  device_id      text COLLATE "C" NOT NULL DEFAULT '',
  expires_at     timestamptz NOT NULL,
  created_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL,
  CONSTRAINT one_reservation_per_request UNIQUE (campaign_id, sku_id, user_id, request_id)
);

-- close_after is when the closer may look: expires_at, or the bounded deadline of a payment attempt.
CREATE TABLE cellquota.orders (
  order_id       text COLLATE "C" PRIMARY KEY,
  reservation_id text COLLATE "C" NOT NULL UNIQUE REFERENCES cellquota.reservations,
  request_id     text COLLATE "C" NOT NULL,
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  user_id        text COLLATE "C" NOT NULL,
  quantity       int NOT NULL CHECK (quantity >= 1),
  amount         numeric(18, 4) NOT NULL CHECK (amount >= 0),
  currency       text NOT NULL,
  state          text NOT NULL CHECK (state IN ('PENDING_PAYMENT', 'PAID', 'CLOSED')),
  reason         text NOT NULL DEFAULT '',
  version        bigint NOT NULL CHECK (version >= 1),
  expires_at     timestamptz NOT NULL,
  close_after    timestamptz NOT NULL,
  created_at     timestamptz NOT NULL,
  paid_at        timestamptz,
  closed_at      timestamptz,
  CHECK ((state = 'PAID') = (paid_at IS NOT NULL)),
  CHECK ((state = 'CLOSED') = (closed_at IS NOT NULL)),
  CONSTRAINT uq_orders_campaign_sku_user UNIQUE (campaign_id, sku_id, user_id)
);
CREATE INDEX orders_due ON cellquota.orders (close_after) WHERE state = 'PENDING_PAYMENT';
CREATE INDEX orders_by_user ON cellquota.orders (user_id, created_at);

-- Payment attempts, keyed (order_id, payment_id).
CREATE TABLE cellquota.payments (
  order_id   text COLLATE "C" NOT NULL,
  payment_id text COLLATE "C" NOT NULL,
  amount     numeric(18, 4) NOT NULL,
  currency   text NOT NULL,
  state      text NOT NULL CHECK (state IN ('INITIATED', 'SUCCEEDED', 'FAILED', 'UNKNOWN', 'MISMATCH',
                                            'PAID_AFTER_CLOSE', 'REFUND_PENDING', 'REFUNDED')),
  refund_id  text COLLATE "C",
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (order_id, payment_id)
);

-- Callbacks that were refused, once each, for whoever has to explain them.
CREATE TABLE cellquota.payment_refusals (
  digest      text PRIMARY KEY,
  payment_id  text COLLATE "C" NOT NULL,
  order_id    text COLLATE "C" NOT NULL,
  amount      text NOT NULL,
  currency    text NOT NULL,
  status      text NOT NULL,
  cause       text NOT NULL CHECK (cause IN ('ORDER_UNKNOWN', 'PAYMENT_MISMATCH')),
  received_at timestamptz NOT NULL
);

-- The ledger: facts about stock, only ever added (I5). Privileges and triggers refuse the rest.
CREATE TABLE cellquota.ledger (
  entry_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
  CONSTRAINT ledger_once_per_action UNIQUE (campaign_id, sku_id, idempotency_key),
  CONSTRAINT i5_available CHECK (after_available = before_available + delta_available AND after_available >= 0 AND before_available >= 0),
  CONSTRAINT i5_reserved CHECK (after_reserved = before_reserved + delta_reserved AND after_reserved >= 0 AND before_reserved >= 0),
  CONSTRAINT i5_confirmed CHECK (after_confirmed = before_confirmed + delta_confirmed AND after_confirmed >= 0 AND before_confirmed >= 0)
);
CREATE INDEX ledger_by_business_no ON cellquota.ledger (business_no);
CREATE INDEX ledger_by_sku ON cellquota.ledger (campaign_id, sku_id, entry_id);

-- +goose StatementBegin
CREATE FUNCTION cellquota.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the ledger is immutable: % refused; add a REVERSAL', TG_OP USING ERRCODE = 'CQ007';
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_is_immutable BEFORE UPDATE OR DELETE ON cellquota.ledger
  FOR EACH ROW EXECUTE FUNCTION cellquota.refuse_change();
CREATE TRIGGER ledger_is_not_truncated BEFORE TRUNCATE ON cellquota.ledger
  FOR EACH STATEMENT EXECUTE FUNCTION cellquota.refuse_change();

-- Effects and events that must leave the shard. payload: MirrorEffect for the target MIRROR, an
-- event for EVENTS. Claims are by state and lease, never by "id greater than the last" (K13).
CREATE TABLE cellquota.outbox (
  outbox_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  target        text NOT NULL CHECK (target IN ('MIRROR', 'EVENTS')),
  aggregate     text COLLATE "C" NOT NULL,
  event_type    text NOT NULL,
  campaign_id   text COLLATE "C" NOT NULL,
  sku_id        text COLLATE "C" NOT NULL,
  payload       bytea NOT NULL,
  traceparent   text NOT NULL DEFAULT '',
  state         text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'PUBLISHED', 'PARKED')),
  attempts      int NOT NULL DEFAULT 0,
  claimed_by    text NOT NULL DEFAULT '',
  claimed_until timestamptz,
  created_at    timestamptz NOT NULL,
  published_at  timestamptz
);
CREATE INDEX outbox_pending ON cellquota.outbox (target, outbox_id) WHERE state = 'PENDING';
CREATE INDEX outbox_pending_of_aggregate ON cellquota.outbox (target, aggregate, outbox_id) WHERE state = 'PENDING';

-- Messages that could not be applied because of their own data.
CREATE TABLE cellquota.parked (
  parked_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic        text COLLATE "C" NOT NULL,
  partition    int NOT NULL,
  topic_id     text COLLATE "C" NOT NULL,
  kafka_offset bigint NOT NULL,
  error_class  text NOT NULL,
  value        bytea NOT NULL,
  parked_at    timestamptz NOT NULL,
  UNIQUE (topic, topic_id, partition, kafka_offset)
);

-- Lives of the mirrors. scope_key as in buyers. minted: the newest build id given out; raised: the
-- build below which messages are LOST_ADMISSION.
CREATE TABLE cellquota.mirrors (
  campaign_id   text COLLATE "C" NOT NULL,
  scope_key     text COLLATE "C" NOT NULL,
  minted_fence  bigint NOT NULL,
  minted_count  bigint NOT NULL CHECK (minted_count >= 1),
  raised_fence  bigint NOT NULL DEFAULT 0,
  raised_count  bigint NOT NULL DEFAULT 0,
  claimed_by    text NOT NULL DEFAULT '',
  claimed_until timestamptz,
  barriers_seen int[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (campaign_id, scope_key),
  CHECK ((raised_fence, raised_count) <= (minted_fence, minted_count))
);

-- Serial-numbered units of SKUs in TOKEN mode.
CREATE TABLE cellquota.tokens (
  token_id       text COLLATE "C" PRIMARY KEY,
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  state          text NOT NULL CHECK (state IN ('FREE', 'BOUND', 'SOLD', 'SEALED')),
  reservation_id text COLLATE "C",
  order_id       text COLLATE "C"
);

-- Differences between the ledgers.
CREATE TABLE cellquota.findings (
  finding_id     text COLLATE "C" PRIMARY KEY,
  kind           text NOT NULL,
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  request_id     text COLLATE "C" NOT NULL DEFAULT '',
  event_id       text COLLATE "C" NOT NULL DEFAULT '',
  reservation_id text COLLATE "C" NOT NULL DEFAULT '',
  order_id       text COLLATE "C" NOT NULL DEFAULT '',
  units          int NOT NULL DEFAULT 0,
  state          text NOT NULL CHECK (state IN ('OPEN', 'PROPOSED', 'REPAIRED', 'MANUAL_REVIEW')),
  action         text NOT NULL DEFAULT '',
  found_at       timestamptz NOT NULL
);

-- What outsiders read (contract, section 6).
CREATE VIEW cellquota.v_stock AS SELECT campaign_id, sku_id, granted, available, reserved, confirmed, released, version, updated_at FROM cellquota.stock;
CREATE VIEW cellquota.v_reservations AS SELECT reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, reason, fence_version, expires_at, created_at FROM cellquota.reservations;
CREATE VIEW cellquota.v_orders AS SELECT order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, state, version, created_at, paid_at, closed_at FROM cellquota.orders;
CREATE VIEW cellquota.v_payments AS SELECT payment_id, order_id, amount, currency, state, refund_id, created_at, updated_at FROM cellquota.payments;
CREATE VIEW cellquota.v_ledger AS SELECT entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
  before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, source, actor, reverses, created_at FROM cellquota.ledger;
CREATE VIEW cellquota.v_adjustments AS SELECT adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, outcome, applied_at FROM cellquota.adjustments;
CREATE VIEW cellquota.v_buyers AS SELECT campaign_id, scope_key, user_id, origin, reservation_id, created_at FROM cellquota.buyers;
CREATE VIEW cellquota.v_inbox AS SELECT event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, topic, partition, kafka_offset,
  fence_version, fence_version || '.' || build_count AS build_id, received_at FROM cellquota.inbox;
CREATE VIEW cellquota.v_positions AS SELECT topic, topic_id, partition, next_offset, leader_epoch, updated_at FROM cellquota.positions;
CREATE VIEW cellquota.v_outbox AS SELECT outbox_id, aggregate, event_type, state, attempts, created_at, published_at FROM cellquota.outbox;
CREATE VIEW cellquota.v_parked AS SELECT parked_id, topic, partition, kafka_offset, error_class, value, parked_at FROM cellquota.parked;
CREATE VIEW cellquota.v_tokens AS SELECT token_id, campaign_id, sku_id, state, reservation_id, order_id FROM cellquota.tokens;
CREATE VIEW cellquota.v_fence AS SELECT f.cell_id, f.fence_version, f.messages_from, f.state, f.instance_group, t.term_count AS term, f.fenced_at, f.reason
  FROM cellquota.fence f CROSS JOIN cellquota.term t;
CREATE VIEW cellquota.v_buckets AS SELECT campaign_id, domain, bucket_from, bucket_to, state, moved_version FROM cellquota.buckets;
CREATE VIEW cellquota.v_findings AS SELECT finding_id, kind, campaign_id, sku_id, request_id, event_id, reservation_id, order_id, units,
  extract(epoch FROM cellquota.now() - found_at)::bigint AS age_seconds, state, action FROM cellquota.findings;
-- For verify (I2, I8, I9) and trace.
CREATE VIEW cellquota.v_fence_history AS SELECT fence_version, state, at, reason FROM cellquota.fence_history;
CREATE VIEW cellquota.v_ledger_writers AS SELECT entry_id, campaign_id, sku_id, action, business_no, stock_version, fence_version, created_at FROM cellquota.ledger;
CREATE VIEW cellquota.v_stock_adjustments AS SELECT campaign_id, sku_id, adjustment_version, last_number, last_adjustment_id, book_record_id FROM cellquota.stock;
CREATE VIEW cellquota.v_mirrors AS SELECT campaign_id, scope_key, minted_fence, minted_count, raised_fence, raised_count FROM cellquota.mirrors;
CREATE VIEW cellquota.v_outbox_payloads AS SELECT outbox_id, target, aggregate, event_type, campaign_id, sku_id, payload, state FROM cellquota.outbox;

-- ---------------------------------------------------------------------------------------------
-- The fence functions. SECURITY DEFINER: the fencer's role may execute them and nothing else
-- writes these tables. All are VOLATILE and meant for READ COMMITTED, so that each statement after
-- the lock sees what committed while the lock was awaited.
--
-- SQLSTATEs: CQ001 version refused, CQ002 state refuses the verb, CQ003 other instance group,
-- CQ004 no fence row, CQ005 term is lower, CQ006 term of the same count with another id,
-- CQ007 ledger is immutable, CQ008 the exclusive lock was not had.

-- require_fence is called by every write transaction as its second statement, after the shared
-- advisory lock in a statement of its own. need: 'ACTIVE' or 'SETTLE'.
-- +goose StatementBegin
CREATE FUNCTION cellquota.require_fence(p_version bigint, p_group text, p_need text) RETURNS void
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
END $$;
-- +goose StatementEnd

-- raise_term keeps the highest term; a lower one, or another id of the same count, is refused. The
-- row stays locked until the caller's transaction ends: an adjustment under an old term commits
-- before a new leader's raise returns, or is refused; it never lands behind the facts that were read.
-- +goose StatementBegin
CREATE FUNCTION cellquota.raise_term(p_count bigint, p_id text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE t cellquota.term%ROWTYPE;
BEGIN
  SELECT * INTO STRICT t FROM cellquota.term FOR UPDATE;
  IF p_count < t.term_count THEN
    RAISE EXCEPTION 'term % is below the shard''s %', p_count, t.term_count USING ERRCODE = 'CQ005';
  END IF;
  IF p_count = t.term_count AND p_id <> t.term_id AND t.term_count > 0 THEN
    RAISE EXCEPTION 'term % is known with another id', p_count USING ERRCODE = 'CQ006';
  END IF;
  UPDATE cellquota.term SET term_count = p_count, term_id = p_id WHERE term_count < p_count;
END $$;
-- +goose StatementEnd

-- install writes the first fence row. A repeat with the same cell and group changes nothing.
-- +goose StatementBegin
CREATE FUNCTION cellquota.install(p_cell text, p_group text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE;
BEGIN
  INSERT INTO cellquota.fence (cell_id, fence_version, messages_from, state, instance_group, state_since, reason)
    VALUES (p_cell, 1, 1, 'ACTIVE', p_group, cellquota.now(), 'provisioned') ON CONFLICT DO NOTHING;
  IF FOUND THEN
    INSERT INTO cellquota.fence_history VALUES (1, 'ACTIVE', cellquota.now(), 'provisioned');
    RETURN 1;
  END IF;
  SELECT * INTO STRICT f FROM cellquota.fence;
  IF f.cell_id <> p_cell OR f.instance_group <> p_group THEN
    RAISE EXCEPTION 'shard belongs to cell % of group %', f.cell_id, f.instance_group USING ERRCODE = 'CQ003';
  END IF;
  RETURN f.fence_version;
END $$;
-- +goose StatementEnd

-- lock_writers_out takes the exclusive lock. After p_wait_ms it ends the backends of the cell's
-- role that hold the shared one, and tries again, at most three times.
-- +goose StatementBegin
CREATE FUNCTION cellquota.lock_writers_out(p_wait_ms int) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE ended int := 0; k bigint := cellquota.lock_key();
BEGIN
  FOR i IN 1..3 LOOP
    BEGIN
      PERFORM set_config('lock_timeout', p_wait_ms::text || 'ms', true);
      PERFORM pg_advisory_xact_lock(k);
      PERFORM set_config('lock_timeout', '0', true);
      RETURN ended;
    EXCEPTION WHEN lock_not_available THEN
      ended := ended + (SELECT count(*) FROM (
        SELECT pg_terminate_backend(l.pid, 1000) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND ((l.classid::bigint << 32) | l.objid::bigint) = k
          AND a.usename = 'cellquota_app' AND l.pid <> pg_backend_pid()) t);
    END;
  END LOOP;
  RAISE EXCEPTION 'writers still hold the shard after three tries' USING ERRCODE = 'CQ008';
END $$;
-- +goose StatementEnd

-- fence installs p_version as FENCED and seals what is available. It answers the proof, and the
-- same proof when it is called again. p_version must be above the shard's.
-- +goose StatementBegin
CREATE FUNCTION cellquota.fence_cell(p_cell text, p_version bigint, p_reason text, p_wait_ms int) RETURNS jsonb
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

-- fence_proof reads what p_version proves: sealed units, stock rows, every numbered adjustment of
-- the versions below it, positions, and which PostgreSQL this is.
-- +goose StatementBegin
CREATE FUNCTION cellquota.fence_proof(p_version bigint) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
  SELECT jsonb_build_object(
    'cell_id', f.cell_id, 'fence_version', p_version, 'fenced_at', f.fenced_at,
    'identity', (SELECT system_identifier::text FROM pg_control_system()) || '/' || (SELECT timeline_id::text FROM pg_control_checkpoint()),
    'sealed', coalesce((SELECT jsonb_agg(jsonb_build_object('adjustment_id', adjustment_id, 'campaign_id', campaign_id, 'sku_id', sku_id, 'units', units) ORDER BY campaign_id, sku_id)
        FROM cellquota.adjustments WHERE kind = 'SEAL' AND sealed_by = p_version), '[]'),
    'stocks', coalesce((SELECT jsonb_agg(jsonb_build_object('campaign_id', campaign_id, 'sku_id', sku_id, 'granted', granted, 'available', available,
        'reserved', reserved, 'confirmed', confirmed, 'released', released, 'version', version) ORDER BY campaign_id, sku_id) FROM cellquota.stock), '[]'),
    'adjustments', coalesce((SELECT jsonb_agg(jsonb_build_object('adjustment_id', adjustment_id, 'campaign_id', campaign_id, 'sku_id', sku_id, 'fence_version', fence_version,
        'number', number, 'kind', kind, 'units', units, 'outcome', outcome) ORDER BY campaign_id, sku_id, fence_version, number)
        FROM cellquota.adjustments WHERE kind <> 'SEAL' AND fence_version < p_version), '[]'),
    'positions', coalesce((SELECT jsonb_agg(jsonb_build_object('topic', topic, 'topic_id', topic_id, 'partition', partition, 'next_offset', next_offset, 'leader_epoch', leader_epoch) ORDER BY topic, partition)
        FROM cellquota.positions), '[]'))
  FROM cellquota.fence f
$$;
-- +goose StatementEnd

-- restore gives the shard to p_group under a higher version, settle-only first. Idempotent.
-- +goose StatementBegin
CREATE FUNCTION cellquota.restore_cell(p_cell text, p_version bigint, p_group text, p_reason text, p_wait_ms int) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE;
BEGIN
  PERFORM cellquota.lock_writers_out(p_wait_ms);
  SELECT * INTO f FROM cellquota.fence FOR UPDATE;
  IF NOT FOUND OR f.cell_id <> p_cell THEN
    RAISE EXCEPTION 'shard has no fence row of cell %', p_cell USING ERRCODE = 'CQ004';
  END IF;
  IF f.fence_version = p_version AND f.state IN ('SETTLE_ONLY', 'ACTIVE') AND f.instance_group = p_group THEN
    RETURN;
  END IF;
  IF f.fence_version >= p_version THEN
    RAISE EXCEPTION 'fence version % is not above the shard''s %', p_version, f.fence_version USING ERRCODE = 'CQ001';
  END IF;
  IF f.state <> 'FENCED' THEN
    RAISE EXCEPTION 'fence is %, restore needs FENCED', f.state USING ERRCODE = 'CQ002';
  END IF;
  UPDATE cellquota.fence SET fence_version = p_version, messages_from = p_version, state = 'SETTLE_ONLY', instance_group = p_group,
    state_since = cellquota.now(), reason = p_reason;
  INSERT INTO cellquota.fence_history VALUES (p_version, 'SETTLE_ONLY', cellquota.now(), p_reason);
  UPDATE cellquota.stock SET adjustment_version = p_version, last_number = 0, updated_at = cellquota.now();
END $$;
-- +goose StatementEnd

-- activate lets a settle-only shard sell again. Idempotent.
-- +goose StatementBegin
CREATE FUNCTION cellquota.activate_cell(p_cell text, p_version bigint, p_reason text, p_wait_ms int) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE f cellquota.fence%ROWTYPE;
BEGIN
  PERFORM cellquota.lock_writers_out(p_wait_ms);
  SELECT * INTO f FROM cellquota.fence FOR UPDATE;
  IF NOT FOUND OR f.cell_id <> p_cell THEN
    RAISE EXCEPTION 'shard has no fence row of cell %', p_cell USING ERRCODE = 'CQ004';
  END IF;
  IF f.fence_version <> p_version THEN
    RAISE EXCEPTION 'fence version % is not the shard''s %', p_version, f.fence_version USING ERRCODE = 'CQ001';
  END IF;
  IF f.state = 'ACTIVE' THEN
    RETURN;
  END IF;
  IF f.state <> 'SETTLE_ONLY' THEN
    RAISE EXCEPTION 'fence is %, activate needs SETTLE_ONLY', f.state USING ERRCODE = 'CQ002';
  END IF;
  UPDATE cellquota.fence SET state = 'ACTIVE', state_since = cellquota.now(), reason = p_reason;
  INSERT INTO cellquota.fence_history VALUES (p_version, 'ACTIVE', cellquota.now(), p_reason);
END $$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cellquota FROM PUBLIC;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
