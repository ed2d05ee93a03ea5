-- +goose Up
-- Entries of lotteries (architecture 7): they live in the entrant's home shard. The app's role adds them;
-- the fencer's role ends entry and names the winners, so that a fenced cell's customers are drawn too.
-- A program of an earlier step never sees a campaign with a lottery: it is published to cells of this step.
--
-- SQLSTATE beside those of earlier steps: CQ015 the entries are not in the state that the verb needs.
CREATE TABLE cellquota.entries (
  campaign_id text COLLATE "C" NOT NULL,
  sku_id      text COLLATE "C" NOT NULL,
  user_id     text COLLATE "C" NOT NULL,
  entry_id    text COLLATE "C" NOT NULL UNIQUE,
  tickets     int NOT NULL CHECK (tickets BETWEEN 1 AND 100),
  won         boolean NOT NULL DEFAULT false,
  entered_at  timestamptz NOT NULL,
  PRIMARY KEY (campaign_id, sku_id, user_id)
);
CREATE INDEX entries_by_id ON cellquota.entries (campaign_id, sku_id, entry_id);

-- From its row on no entry is added; from drawn_at on whoever has not won has lost.
CREATE TABLE cellquota.entry_closings (
  campaign_id text COLLATE "C" NOT NULL,
  sku_id      text COLLATE "C" NOT NULL,
  entrants    bigint NOT NULL,
  closed_at   timestamptz NOT NULL,
  winners     bigint,
  drawn_at    timestamptz,
  PRIMARY KEY (campaign_id, sku_id),
  CHECK ((winners IS NULL) = (drawn_at IS NULL))
);

CREATE VIEW cellquota.v_entries AS SELECT e.entry_id, e.campaign_id, e.sku_id, e.user_id, e.tickets,
  CASE WHEN c.drawn_at IS NULL THEN 'ENTERED' WHEN e.won THEN 'WON' ELSE 'LOST' END AS state, e.entered_at
  FROM cellquota.entries e LEFT JOIN cellquota.entry_closings c ON (c.campaign_id, c.sku_id) = (e.campaign_id, e.sku_id);

-- close_entries ends entry of a SKU and answers how many entered. Under the exclusive lock and in a later
-- statement: every entry that was begun before has committed and is counted, none is begun after. Nobody's
-- backend is ended for it (CQ008, try again). A repeat answers the same.
-- +goose StatementBegin
CREATE FUNCTION cellquota.close_entries(p_cell text, p_campaign text, p_sku text, p_wait_ms int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE n bigint;
BEGIN
  SELECT entrants INTO n FROM cellquota.entry_closings WHERE (campaign_id, sku_id) = (p_campaign, p_sku);
  IF FOUND THEN
    RETURN n;
  END IF;
  BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text || 'ms', true);
    PERFORM pg_advisory_xact_lock(cellquota.lock_key());
    PERFORM set_config('lock_timeout', '0', true);
  EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'writers hold the shard for longer than % ms', p_wait_ms USING ERRCODE = 'CQ008';
  END;
  PERFORM cellquota.require_cell(p_cell);
  SELECT count(*) INTO n FROM cellquota.entries WHERE (campaign_id, sku_id) = (p_campaign, p_sku);
  INSERT INTO cellquota.entry_closings (campaign_id, sku_id, entrants, closed_at) VALUES (p_campaign, p_sku, n, cellquota.now())
    ON CONFLICT DO NOTHING;
  RETURN (SELECT entrants FROM cellquota.entry_closings WHERE (campaign_id, sku_id) = (p_campaign, p_sku));
END $$;
-- +goose StatementEnd

-- draw_entries names winners of a SKU whose entry is closed; a repeat changes nothing. An id that is not an
-- entry here, or a page that comes after the draw ended, is CQ015.
-- +goose StatementBegin
CREATE FUNCTION cellquota.draw_entries(p_cell text, p_campaign text, p_sku text, p_ids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE c cellquota.entry_closings%ROWTYPE; n bigint;
BEGIN
  PERFORM cellquota.require_cell(p_cell);
  SELECT * INTO c FROM cellquota.entry_closings WHERE (campaign_id, sku_id) = (p_campaign, p_sku) FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'entry of %/% is not closed', p_campaign, p_sku USING ERRCODE = 'CQ015';
  END IF;
  IF c.drawn_at IS NULL THEN
    UPDATE cellquota.entries SET won = true
      WHERE (campaign_id, sku_id) = (p_campaign, p_sku) AND entry_id = ANY(p_ids) AND NOT won;
  END IF;
  SELECT count(*) INTO n FROM cellquota.entries WHERE (campaign_id, sku_id) = (p_campaign, p_sku) AND entry_id = ANY(p_ids) AND won;
  IF n <> cardinality(p_ids) THEN
    RAISE EXCEPTION '% of % named entries of %/% can win', n, cardinality(p_ids), p_campaign, p_sku USING ERRCODE = 'CQ015';
  END IF;
END $$;
-- +goose StatementEnd

-- end_draw ends the draw of a SKU: p_winners won here and the others have lost. Another number is CQ015,
-- also when it ended before.
-- +goose StatementBegin
CREATE FUNCTION cellquota.end_draw(p_cell text, p_campaign text, p_sku text, p_winners bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = cellquota, pg_temp AS $$
DECLARE c cellquota.entry_closings%ROWTYPE; n bigint;
BEGIN
  PERFORM cellquota.require_cell(p_cell);
  SELECT * INTO c FROM cellquota.entry_closings WHERE (campaign_id, sku_id) = (p_campaign, p_sku) FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'entry of %/% is not closed', p_campaign, p_sku USING ERRCODE = 'CQ015';
  END IF;
  SELECT count(*) INTO n FROM cellquota.entries WHERE (campaign_id, sku_id) = (p_campaign, p_sku) AND won;
  IF n <> p_winners THEN
    RAISE EXCEPTION '% entries of %/% are winners, not %', n, p_campaign, p_sku, p_winners USING ERRCODE = 'CQ015';
  END IF;
  UPDATE cellquota.entry_closings SET winners = p_winners, drawn_at = cellquota.now()
    WHERE (campaign_id, sku_id) = (p_campaign, p_sku) AND drawn_at IS NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION cellquota.close_entries(text, text, text, int), cellquota.draw_entries(text, text, text, text[]),
  cellquota.end_draw(text, text, text, bigint) FROM PUBLIC;

-- +goose Down
-- A shard is never migrated down (contract, section 1).
