-- A cell's writes, as small functions, for tests of what reads and fences shards. Each takes the
-- shared lock and checks the fence in statements of their own, as cell/shard does; campaign c.
CREATE SCHEMA sale;

CREATE FUNCTION sale.begin(p_version bigint, p_need text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(cellquota.lock_key());
  PERFORM cellquota.require_fence(p_version, 'blue', p_need);
END $$;

CREATE FUNCTION sale.entry(p_version bigint, p_sku text, p_action text, p_business text, p_available int, p_reserved int, p_confirmed int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE s cellquota.stock%ROWTYPE;
BEGIN
  SELECT * INTO STRICT s FROM cellquota.stock WHERE campaign_id = 'c' AND sku_id = p_sku FOR UPDATE;
  INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
      before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
    VALUES ('c', p_sku, p_action, p_business, p_action || ':' || p_business || ':1', p_available, p_reserved, p_confirmed, s.available, s.available + p_available,
      s.reserved, s.reserved + p_reserved, s.confirmed, s.confirmed + p_confirmed, s.version + 1, p_version, 'test', 'test', cellquota.now());
  UPDATE cellquota.stock SET granted = granted + p_available + p_reserved + p_confirmed, available = available + p_available, reserved = reserved + p_reserved,
      confirmed = confirmed + p_confirmed, version = version + 1, updated_at = cellquota.now() WHERE campaign_id = 'c' AND sku_id = p_sku;
END $$;

-- rules makes the stock row, as the first version of a campaign's rules does.
CREATE FUNCTION sale.rules(p_version bigint, p_sku text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM sale.begin(p_version, 'SETTLE');
  INSERT INTO cellquota.stock (campaign_id, sku_id, adjustment_version, updated_at) VALUES ('c', p_sku, p_version, cellquota.now());
END $$;

-- adjust applies the next numbered adjustment.
CREATE FUNCTION sale.adjust(p_version bigint, p_sku text, p_id text, p_number bigint, p_kind text, p_units int, p_record text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM sale.begin(p_version, 'SETTLE');
  IF NOT EXISTS (SELECT FROM cellquota.stock WHERE campaign_id = 'c' AND sku_id = p_sku AND adjustment_version = p_version AND last_number = p_number - 1) THEN
    RAISE EXCEPTION 'number % is not the next one under version %', p_number, p_version;
  END IF;
  INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
    VALUES (p_id, 'c', p_sku, p_version, p_number, p_kind, p_units, p_units, 'APPLIED', cellquota.now());
  PERFORM sale.entry(p_version, p_sku, p_kind, p_id, CASE p_kind WHEN 'GRANT' THEN p_units ELSE -p_units END, 0, 0);
  UPDATE cellquota.stock SET last_number = p_number, last_adjustment_id = p_id, book_record_id = p_record WHERE campaign_id = 'c' AND sku_id = p_sku;
END $$;

-- sell makes an order of one unit; its reservation is r-USER, its order o-USER.
CREATE FUNCTION sale.sell(p_version bigint, p_sku text, p_user text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE r text := 'r-' || p_user || '-' || p_sku;
BEGIN
  PERFORM sale.begin(p_version, 'ACTIVE');
  INSERT INTO cellquota.buyers VALUES ('c', p_sku, p_user, 'OWN', r, cellquota.now());
  PERFORM sale.entry(p_version, p_sku, 'RESERVE', r, -1, 1, 0);
  INSERT INTO cellquota.reservations (reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, fence_version, build_count, expires_at, created_at, updated_at)
    VALUES (r, 'q-' || p_user, 'c', p_sku, p_user, 1, 'RESERVED', p_version, 1, cellquota.now() + interval '1 hour', cellquota.now(), cellquota.now());
  INSERT INTO cellquota.orders (order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, state, version, expires_at, close_after, created_at)
    VALUES ('o-' || p_user || '-' || p_sku, r, 'q-' || p_user, 'c', p_sku, p_user, 1, 10, 'CNY', 'PENDING_PAYMENT', 1, cellquota.now() + interval '1 hour', cellquota.now() + interval '1 hour', cellquota.now());
  INSERT INTO cellquota.inbox (event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, topic, partition, kafka_offset, fence_version, build_count, written_under, admitted_at, received_at)
    VALUES ('reserve-' || r, r, 'q-' || p_user, 'c', p_sku, p_user, 1, 'ORDERED', 't', 0, 0, p_version, 1, p_version, cellquota.now(), cellquota.now());
END $$;

CREATE FUNCTION sale.pay(p_version bigint, p_sku text, p_user text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE r text := 'r-' || p_user || '-' || p_sku;
BEGIN
  PERFORM sale.begin(p_version, 'SETTLE');
  PERFORM sale.entry(p_version, p_sku, 'CONFIRM', r, 0, -1, 1);
  UPDATE cellquota.orders SET state = 'PAID', version = version + 1, paid_at = cellquota.now() WHERE reservation_id = r AND state = 'PENDING_PAYMENT';
  UPDATE cellquota.reservations SET state = 'CONFIRMED', updated_at = cellquota.now() WHERE reservation_id = r;
END $$;

CREATE FUNCTION sale.close(p_version bigint, p_sku text, p_user text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE r text := 'r-' || p_user || '-' || p_sku;
BEGIN
  PERFORM sale.begin(p_version, 'SETTLE');
  PERFORM sale.entry(p_version, p_sku, 'RELEASE', r, 1, -1, 0);
  UPDATE cellquota.orders SET state = 'CLOSED', version = version + 1, closed_at = cellquota.now() WHERE reservation_id = r AND state = 'PENDING_PAYMENT';
  UPDATE cellquota.reservations SET state = 'RELEASED', reason = 'EXPIRED', updated_at = cellquota.now() WHERE reservation_id = r;
END $$;

GRANT USAGE ON SCHEMA sale TO cellquota_app;
