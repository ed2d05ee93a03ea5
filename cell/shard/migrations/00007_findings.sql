-- +goose Up
-- Findings of reconcile: who is looking, what was asked for, what was found, what was done about it.
-- Only additions: a program of the steps before runs on this schema and writes findings of its own
-- (tokens), whose new columns have defaults.

-- Writers are kept out meanwhile, as by a fence: an index of the ledger is made under their feet.
SELECT pg_advisory_xact_lock(cellquota.lock_key());

ALTER TABLE cellquota.findings
  ADD COLUMN user_id       text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN entry_id      bigint,                    -- the ledger entry that is one too many
  ADD COLUMN detail        text NOT NULL DEFAULT '',  -- what does not fit, in words
  ADD COLUMN owner         text NOT NULL DEFAULT '',  -- who was assigned by a repair; '': the campaign's owner
  ADD COLUMN tries         int NOT NULL DEFAULT 0,    -- automatic repairs so far
  ADD COLUMN first_try_at  timestamptz,
  ADD COLUMN next_try_at   timestamptz,
  ADD COLUMN looked_at     timestamptz,               -- last seen, or looked for
  ADD COLUMN repaired_at   timestamptz,
  ADD COLUMN snapshot      jsonb;                     -- of a quantity finding: the scene before anybody moved it
CREATE INDEX findings_open ON cellquota.findings (looked_at NULLS FIRST) WHERE state IN ('OPEN', 'PROPOSED', 'MANUAL_REVIEW');
CREATE INDEX findings_of_event ON cellquota.findings (event_id) WHERE event_id <> '';

-- What was done about a finding, or asked for: only ever added.
CREATE TABLE cellquota.finding_repairs (
  repair_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  finding_id  text COLLATE "C" NOT NULL,
  action      text NOT NULL,
  outcome     text NOT NULL,                    -- DONE, ALREADY, FAILED, CLOSED (the ledgers agree by themselves)
  detail      text NOT NULL DEFAULT '',
  actor       text NOT NULL,
  reason      text NOT NULL DEFAULT '',
  incident    text NOT NULL DEFAULT '',
  approval_id text COLLATE "C" NOT NULL DEFAULT '',
  approver    text NOT NULL DEFAULT '',
  at          timestamptz NOT NULL
);
CREATE INDEX finding_repairs_of ON cellquota.finding_repairs (finding_id, repair_id);

-- Who compares the ledgers now, by the database's clock, and how far the walk is.
CREATE TABLE cellquota.reconcile_walk (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  claimed_by    text NOT NULL DEFAULT '',
  claimed_until timestamptz,
  cursor        text COLLATE "C" NOT NULL DEFAULT '',  -- reservation up to which this cycle has come
  cycle         bigint NOT NULL DEFAULT 0,             -- cycles that ended
  ended_at      timestamptz,                           -- of the last one
  began_at      timestamptz                            -- of the last one that ended
);
INSERT INTO cellquota.reconcile_walk DEFAULT VALUES;

-- Full runs that somebody asked for.
CREATE TABLE cellquota.reconcile_runs (
  run_id      text COLLATE "C" PRIMARY KEY,
  campaign_id text COLLATE "C" NOT NULL DEFAULT '',  -- '': all
  actor       text NOT NULL,
  reason      text NOT NULL DEFAULT '',
  asked_at    timestamptz NOT NULL,
  started_at  timestamptz,
  ended_at    timestamptz,
  requests    bigint NOT NULL DEFAULT 0,             -- ids that were compared
  found       int NOT NULL DEFAULT 0,                -- differences that a second look confirmed
  detail      text NOT NULL DEFAULT ''               -- what could not be compared
);
CREATE INDEX reconcile_runs_open ON cellquota.reconcile_runs (asked_at) WHERE ended_at IS NULL;

-- An entry that was reversed counts as none.
CREATE INDEX ledger_reversals ON cellquota.ledger (reverses) WHERE reverses IS NOT NULL;

-- Kinds that say that stock is not what it should be: while one of them is open, nothing moves units of
-- that SKU here by itself.
-- +goose StatementBegin
CREATE FUNCTION cellquota.freezes(p_kind text, p_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT p_kind IN ('QUANTITY_MISMATCH', 'DUPLICATE_ACTION', 'MISSING_ACTION') AND p_state IN ('OPEN', 'PROPOSED', 'MANUAL_REVIEW')
$$;
-- +goose StatementEnd
CREATE VIEW cellquota.v_frozen_skus AS SELECT campaign_id, sku_id, min(finding_id) AS finding_id, count(*) AS findings, min(found_at) AS since
  FROM cellquota.findings WHERE cellquota.freezes(kind, state) GROUP BY campaign_id, sku_id;
CREATE VIEW cellquota.v_finding_details AS SELECT finding_id, kind, campaign_id, sku_id, user_id, request_id, event_id, reservation_id, order_id, entry_id, units,
  extract(epoch FROM cellquota.now() - found_at)::bigint AS age_seconds, state, action, detail, owner, tries, found_at, looked_at, repaired_at, snapshot
  FROM cellquota.findings;
CREATE VIEW cellquota.v_finding_repairs AS SELECT repair_id, finding_id, action, outcome, detail, actor, reason, incident, approval_id, approver, at FROM cellquota.finding_repairs;
CREATE VIEW cellquota.v_reconcile_runs AS SELECT run_id, campaign_id, actor, reason, asked_at, started_at, ended_at, requests, found, detail FROM cellquota.reconcile_runs;
CREATE VIEW cellquota.v_reconcile_walk AS SELECT claimed_by, claimed_until, cursor, cycle, ended_at, began_at FROM cellquota.reconcile_walk;

-- The three streams of the database's ledgers, each in the order of reservations, as reconcile reads them
-- from the shard or a standby. No view calls now(): a volatile column keeps the order of the rows from
-- the planner, and a page is then sorted out of all that is left.
CREATE VIEW cellquota.v_reconcile_inbox AS SELECT event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason,
  fence_version, build_count, topic, received_at FROM cellquota.inbox;
CREATE VIEW cellquota.v_reconcile_holds AS SELECT r.reservation_id, r.request_id, r.campaign_id, r.sku_id, r.user_id, r.quantity, r.state, r.reason, r.created_at, r.updated_at,
  o.order_id, o.quantity AS order_quantity, o.state AS order_state, o.version AS order_version,
  CASE WHEN o.state = 'PENDING_PAYMENT' AND o.close_after < 'infinity' THEN o.close_after END AS due_at,
  (SELECT count(*) FROM cellquota.payments p WHERE p.order_id = o.order_id AND p.state IN ('SUCCEEDED', 'REFUND_PENDING', 'REFUNDED')) AS paid,
  (SELECT b.reservation_id FROM cellquota.buyers b WHERE b.campaign_id = r.campaign_id AND b.user_id = r.user_id
     AND b.scope_key = CASE c.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE r.sku_id END) AS buyer,
  k.inventory_mode = 'TOKEN' AS tokens,
  CASE WHEN k.inventory_mode = 'TOKEN' THEN (SELECT count(*) FROM cellquota.tokens t WHERE t.reservation_id = r.reservation_id) ELSE 0 END AS token_rows
  FROM cellquota.reservations r LEFT JOIN cellquota.orders o ON o.reservation_id = r.reservation_id
    LEFT JOIN cellquota.campaigns c ON c.campaign_id = r.campaign_id LEFT JOIN cellquota.skus k ON k.campaign_id = r.campaign_id AND k.sku_id = r.sku_id;
CREATE VIEW cellquota.v_reconcile_entries AS SELECT l.entry_id, l.campaign_id, l.sku_id, l.action, l.business_no, l.delta_available, l.delta_reserved, l.delta_confirmed,
  l.stock_version, EXISTS (SELECT FROM cellquota.ledger x WHERE x.campaign_id = l.campaign_id AND x.reverses = l.entry_id) AS reversed
  FROM cellquota.ledger l;
-- The ledger in the order in which a SKU's stock was moved, with what each entry starts from.
CREATE VIEW cellquota.v_reconcile_chain AS SELECT l.entry_id, l.campaign_id, l.sku_id, l.stock_version, l.before_available, l.before_reserved, l.before_confirmed,
  l.after_available, l.after_reserved, l.after_confirmed, l.business_no,
  l.action IN ('GRANT', 'RETURN', 'SEAL') AND NOT EXISTS (SELECT FROM cellquota.adjustments a
    WHERE a.adjustment_id = l.business_no AND a.kind = l.action AND a.outcome = 'APPLIED' AND a.units = abs(l.delta_available))
    AND NOT EXISTS (SELECT FROM cellquota.ledger x WHERE x.campaign_id = l.campaign_id AND x.reverses = l.entry_id) AS orphan FROM cellquota.ledger l;
CREATE VIEW cellquota.v_reconcile_buyers AS SELECT b.campaign_id, b.scope_key, b.user_id, b.reservation_id, b.origin,
  b.origin = 'OWN' AND r.found IS NULL AND i.found IS NULL AS orphan
  FROM cellquota.buyers b -- looked up row by row, never by reading all of either (OFFSET keeps them apart)
    LEFT JOIN LATERAL (SELECT true AS found FROM cellquota.reservations r WHERE r.reservation_id = b.reservation_id OFFSET 0) r ON true
    LEFT JOIN LATERAL (SELECT true AS found FROM cellquota.inbox i WHERE r.found IS NULL AND b.origin = 'OWN' AND i.event_id = 'reserve-' || b.reservation_id AND i.outcome NOT IN ('ORDERED', 'REJECTED', 'RELEASED') OFFSET 0) i ON true;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cellquota FROM PUBLIC;
-- Cells write while this runs, and grants.sql comes a moment later.
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cellquota_app') THEN
    GRANT SELECT, INSERT ON cellquota.finding_repairs TO cellquota_app;
    GRANT SELECT, INSERT, UPDATE ON cellquota.reconcile_walk, cellquota.reconcile_runs TO cellquota_app;
    GRANT SELECT ON cellquota.v_reconcile_inbox, cellquota.v_reconcile_holds, cellquota.v_reconcile_entries, cellquota.v_reconcile_chain,
      cellquota.v_reconcile_buyers, cellquota.v_frozen_skus TO cellquota_app;
    GRANT EXECUTE ON FUNCTION cellquota.freezes(text, text) TO cellquota_app;
  END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- A shard is never migrated down (contract, section 1).
