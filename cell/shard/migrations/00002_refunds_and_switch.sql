-- +goose Up
-- Refunds as rows of their own, what early closing and limits on holds look up, and the cell's switch.
-- Only additions: a program of step 1 runs on this schema, and what it leaves (a payment to be
-- refunded without a row here) is taken up by the refund loop of a newer one.

-- One row per refund, whoever asked for it. PENDING rows are asked of the payment channel until it
-- answers; next_ask_at paces that. amount below the order's total is a part and never restocks.
CREATE TABLE cellquota.refunds (
  refund_id    text COLLATE "C" PRIMARY KEY,
  order_id     text COLLATE "C" NOT NULL,
  payment_id   text COLLATE "C" NOT NULL,
  amount       numeric(18, 4) NOT NULL CHECK (amount >= 0),
  currency     text NOT NULL,
  part         boolean NOT NULL DEFAULT false,
  cause        text NOT NULL CHECK (cause IN ('REQUESTED', 'CAMPAIGN_CANCELLED', 'PAID_AFTER_CLOSE', 'DUPLICATE_PAYMENT', 'CHANNEL')),
  actor        text NOT NULL DEFAULT '',
  reason       text NOT NULL DEFAULT '',
  state        text NOT NULL CHECK (state IN ('PENDING', 'REFUNDED')),
  restocked    boolean NOT NULL DEFAULT false,
  asks         int NOT NULL DEFAULT 0,
  answer       text NOT NULL DEFAULT '',
  next_ask_at  timestamptz,
  requested_at timestamptz NOT NULL,
  refunded_at  timestamptz,
  CHECK ((state = 'REFUNDED') = (refunded_at IS NOT NULL)),
  CHECK ((state = 'PENDING') = (next_ask_at IS NOT NULL)),
  CHECK (NOT (part AND restocked))
);
CREATE INDEX refunds_due ON cellquota.refunds (next_ask_at) WHERE state = 'PENDING';
CREATE INDEX refunds_of_order ON cellquota.refunds (order_id, payment_id);
-- An attempt's money goes back in one go at most once; parts that the channel told of are apart.
CREATE UNIQUE INDEX one_open_refund_per_payment ON cellquota.refunds (order_id, payment_id) WHERE state = 'PENDING';
CREATE INDEX payments_to_refund ON cellquota.payments (updated_at) WHERE state IN ('PAID_AFTER_CLOSE', 'REFUND_PENDING');

-- Closing and refunding a cancelled campaign, page by page.
CREATE INDEX orders_unpaid_of_campaign ON cellquota.orders (campaign_id, order_id) WHERE state = 'PENDING_PAYMENT';
CREATE INDEX orders_paid_of_campaign ON cellquota.orders (campaign_id, paid_at, order_id) WHERE state = 'PAID';

-- Unpaid holds of one user and of one device (R-081).
CREATE INDEX holds_of_user ON cellquota.reservations (campaign_id, user_id) WHERE state IN ('RESERVED', 'MANUAL_REVIEW');
CREATE INDEX holds_of_device ON cellquota.reservations (campaign_id, device_id) WHERE state IN ('RESERVED', 'MANUAL_REVIEW') AND device_id <> '';

-- The operator's switch of this cell, as the control plane told it. It outlives restarts and grows
-- only in version; the cell's role changes it by set_cell_switch alone.
CREATE TABLE cellquota.cell_switch (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  paused     boolean NOT NULL DEFAULT false,
  version    bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
  reason     text NOT NULL DEFAULT '',
  updated_at timestamptz NOT NULL
);
INSERT INTO cellquota.cell_switch (updated_at) VALUES (cellquota.now());

-- set_cell_switch keeps the newest word; true: this one was newer and stands now.
-- +goose StatementBegin
CREATE FUNCTION cellquota.set_cell_switch(p_paused boolean, p_version bigint, p_reason text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
BEGIN
  UPDATE cellquota.cell_switch SET paused = p_paused, version = p_version, reason = p_reason, updated_at = cellquota.now()
    WHERE version < p_version;
  RETURN FOUND;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION cellquota.set_cell_switch(boolean, bigint, text) FROM PUBLIC;

CREATE VIEW cellquota.v_refunds AS SELECT refund_id, order_id, payment_id, amount, currency, part, cause, actor, reason, state, restocked, asks, answer,
  next_ask_at, requested_at, refunded_at FROM cellquota.refunds;
CREATE VIEW cellquota.v_cell_switch AS SELECT paused, version, reason, updated_at FROM cellquota.cell_switch;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
