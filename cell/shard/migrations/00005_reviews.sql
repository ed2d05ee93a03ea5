-- +goose Up
-- How a MANUAL_REVIEW ends, and the queue of those that wait for a person. Only additions: a program of
-- step 4 runs on this schema and ends none.

-- Writers are kept out while this runs, as a fence keeps them out: a column and triggers take tables that
-- they hold in other orders (a deadlock, found under a sale).
SELECT pg_advisory_xact_lock(cellquota.lock_key());

-- What a person ended, once per reservation and only ever added. A RELEASE closed an unpaid order whose
-- payment channel stayed silent; a RETURN gave the unit of a parked message back to its mirror, and its row
-- of the table of parked messages moved here (value and the columns after it).
CREATE TABLE cellquota.review_endings (
  operation_id   text COLLATE "C" PRIMARY KEY,
  action         text NOT NULL CHECK (action IN ('RELEASE', 'RETURN')),
  reservation_id text COLLATE "C" NOT NULL,
  campaign_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  quantity       int NOT NULL CHECK (quantity >= 1),
  ended_as       text NOT NULL CHECK (ended_as = CASE action WHEN 'RELEASE' THEN 'CLOSED' ELSE 'REJECTED' END),
  ended_for      text NOT NULL,
  reason         text NOT NULL CHECK (reason <> ''),
  actor          text NOT NULL CHECK (actor <> ''),
  incident       text NOT NULL CHECK (incident <> ''),
  since          timestamptz NOT NULL,
  ended_at       timestamptz NOT NULL,
  fence_version  bigint NOT NULL,
  topic_id       text COLLATE "C" NOT NULL DEFAULT '',
  error_class    text NOT NULL DEFAULT '',
  value          bytea,
  CONSTRAINT a_review_ends_once UNIQUE (reservation_id)
);
CREATE VIEW cellquota.v_review_endings AS SELECT operation_id, action, reservation_id, campaign_id, sku_id, quantity, ended_as, ended_for,
  reason, actor, incident, since, ended_at, fence_version, topic_id, error_class, value FROM cellquota.review_endings;

-- The queue. cause: SILENT_PAYMENT (ended by release), PARKED_MESSAGE (ended by return), UNREAD_MESSAGE (a
-- parked value that no request could be read from: nothing here can be ended).
CREATE INDEX reservations_in_review ON cellquota.reservations (updated_at) WHERE state = 'MANUAL_REVIEW';
CREATE INDEX inbox_parked ON cellquota.inbox (topic, partition, kafka_offset) WHERE outcome = 'PARKED';
CREATE VIEW cellquota.v_reviews AS
  SELECT 'SILENT_PAYMENT' AS cause, r.reservation_id, coalesce(o.order_id, '') AS order_id, r.request_id, r.campaign_id, r.sku_id, r.user_id, r.quantity,
    '' AS error_class, NULL::bigint AS parked_id, r.updated_at AS since, extract(epoch FROM cellquota.now() - r.updated_at)::bigint AS age_seconds
  FROM cellquota.reservations r LEFT JOIN cellquota.orders o ON o.reservation_id = r.reservation_id WHERE r.state = 'MANUAL_REVIEW'
  UNION ALL
  SELECT 'PARKED_MESSAGE', i.reservation_id, '', i.request_id, i.campaign_id, i.sku_id, i.user_id, i.quantity,
    coalesce(p.error_class, ''), p.parked_id, i.received_at, extract(epoch FROM cellquota.now() - i.received_at)::bigint
  FROM cellquota.inbox i LEFT JOIN LATERAL (SELECT parked_id, error_class FROM cellquota.parked p
    WHERE p.topic = i.topic AND p.partition = i.partition AND p.kafka_offset = i.kafka_offset ORDER BY parked_id DESC LIMIT 1) p ON true
  WHERE i.outcome = 'PARKED'
  UNION ALL
  SELECT 'UNREAD_MESSAGE', '', '', '', '', '', '', 0, p.error_class, p.parked_id, p.parked_at, extract(epoch FROM cellquota.now() - p.parked_at)::bigint
  FROM cellquota.parked p WHERE NOT EXISTS (SELECT FROM cellquota.inbox i
    WHERE i.outcome = 'PARKED' AND i.topic = p.topic AND i.partition = p.partition AND i.kafka_offset = p.kafka_offset);

-- The W3C context of the request that an order comes from: its closing is a part of the same trace.
ALTER TABLE cellquota.orders ADD COLUMN traceparent text NOT NULL DEFAULT '';

-- What is over stays over, in the database too (R-322): a paid or closed order, a confirmed or released
-- reservation. SQLSTATE CQ013.
-- +goose StatementBegin
CREATE FUNCTION cellquota.refuse_revival() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% of % is %, it never becomes %', TG_TABLE_NAME, OLD.reservation_id, OLD.state, NEW.state USING ERRCODE = 'CQ013';
END $$;
-- +goose StatementEnd
CREATE TRIGGER order_is_over BEFORE UPDATE OF state ON cellquota.orders
  FOR EACH ROW WHEN (OLD.state IN ('PAID', 'CLOSED') AND NEW.state <> OLD.state) EXECUTE FUNCTION cellquota.refuse_revival();
CREATE TRIGGER reservation_is_over BEFORE UPDATE OF state ON cellquota.reservations
  FOR EACH ROW WHEN (OLD.state IN ('CONFIRMED', 'RELEASED') AND NEW.state <> OLD.state) EXECUTE FUNCTION cellquota.refuse_revival();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cellquota FROM PUBLIC;
-- Cells write while this runs, and grants.sql comes a moment later.
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN
    GRANT SELECT, INSERT ON cellquota.review_endings TO cellquota_app;
  END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A shard is never migrated down (contract, section 1).
