package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/postgres"
)

// InboxFact is what became of one message, as reconcile compares it.
type InboxFact struct {
	Event       string
	Reservation ids.ReservationID
	Request     ids.RequestID
	Campaign    ids.CampaignID
	SKU         ids.SKUID
	User        ids.UserID
	Quantity    int32
	Outcome     InboxOutcome
	Reason      reservation.Reason
	Build       ids.Build
	Topic       string // "": no message brought it
	ReceivedAt  time.Time
}

// HoldFact is a reservation with what belongs to it.
type HoldFact struct {
	Reservation   ids.ReservationID
	Request       ids.RequestID
	Campaign      ids.CampaignID
	SKU           ids.SKUID
	User          ids.UserID
	Quantity      int32
	State         reservation.ReservationState
	Reason        reservation.Reason
	CreatedAt     time.Time
	UpdatedAt     time.Time
	Order         ids.OrderID // "": none
	OrderQuantity int32
	OrderState    reservation.OrderState
	OrderVersion  int64
	OverdueS      int64             // seconds since the order should have been closed; at most 0: not yet
	Paid          int64             // payment attempts that took the money
	Buyer         ids.ReservationID // who has the user's place; "": nobody
	Tokens        bool              // the SKU is in TOKEN mode
	TokenRows     int64             // rows bound to the reservation
}

// EntryFact is a RESERVE, CONFIRM or RELEASE of the ledger.
type EntryFact struct {
	ID           int64
	Campaign     ids.CampaignID
	SKU          ids.SKUID
	Action       string
	Reservation  ids.ReservationID
	Available    int32 // deltas
	Reserved     int32
	Confirmed    int32
	StockVersion int64
	Reversed     bool // it counts as none
}

// BuyerFact is a user's place.
type BuyerFact struct {
	Campaign    ids.CampaignID
	ScopeKey    string
	User        ids.UserID
	Reservation ids.ReservationID
	Orphan      bool // its own, and neither a reservation nor a parked message is behind it
}

// ChainFact is one entry as it follows on the one before.
type ChainFact struct {
	ID           int64
	StockVersion int64
	Before       [3]int32 // available, reserved, confirmed
	After        [3]int32
	BusinessNo   string
	Orphan       bool // of an adjustment that the shard does not know, or knows with other units
}

// StockFact is a stock row beside the last entry of its ledger, read together.
type StockFact struct {
	Campaign ids.CampaignID
	SKU      ids.SKUID
	Granted  int32
	Units    [3]int32 // available, reserved, confirmed
	Version  int64
	Entry    int64 // the last entry; 0: none
	EntryAt  int64 // its stock version
	After    [3]int32
	Pending  int64 // effects for the mirror that have not left
	ScopeKey string
	Raised   ids.Build
	Number   int64 // of the last adjustment under the shard's fence version
}

// AdjustmentFact is an applied adjustment.
type AdjustmentFact struct {
	ID       string
	Campaign ids.CampaignID
	SKU      ids.SKUID
	Units    int32
	Booked   bool // the ledger has its entry
}

// LedgersConfig says from where the pages are read.
type LedgersConfig struct {
	// DSN of a reader, perhaps of a standby; "": the shard's own pool.
	DSN string
	// Timeout of one statement; default 10 s.
	Timeout   time.Duration
	Encrypted bool
}

// Ledgers reads the database's ledgers page by page. What it says may be a moment old; Store.Look says
// what is. Safe for concurrent use.
type Ledgers struct {
	store *Store
	pool  *pgxpool.Pool // nil: the store's
}

// Ledgers opens the reader of pages. Close ends it.
func (s *Store) Ledgers(ctx context.Context, cfg LedgersConfig) (*Ledgers, error) {
	l := &Ledgers{store: s}
	if cfg.DSN == "" {
		return l, nil
	}
	pc, err := postgres.ParsePool(cfg.DSN, postgres.Policy{Encrypted: cfg.Encrypted})
	if err != nil {
		return nil, fmt.Errorf("reconcile.reader_dsn_file: %w", err)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultStatement
	}
	pc.MaxConns, pc.ConnConfig.ConnectTimeout = 2, connectTimeout
	params := pc.ConnConfig.RuntimeParams
	params["application_name"], params["default_transaction_read_only"] = "cellquota-reconcile", "on"
	params["statement_timeout"], params["plan_cache_mode"], params["jit"] = millis(cfg.Timeout), "force_generic_plan", "off"
	params["enable_seqscan"] = "off"
	if l.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("reconcile's pool: %w", err)
	}
	return l, nil
}

// Close ends the reader's own connections.
func (l *Ledgers) Close() {
	if l.pool != nil {
		l.pool.Close()
	}
}

func (l *Ledgers) from() *pgxpool.Pool {
	if l.pool != nil {
		return l.pool
	}
	return l.store.pool
}

// ReconcileKnown tells whether the schema has what reconcile reads and writes (step 7).
func (s *Store) ReconcileKnown(ctx context.Context) (known bool, err error) {
	err = s.pool.QueryRow(ctx, sql("reconcile_known")).Scan(&known)
	return known, translate(err)
}

// queryer is a pool or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func read[T any](ctx context.Context, q queryer, scan pgx.RowToFunc[T], name string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql(name), args...)
	if err != nil {
		return nil, translate(err)
	}
	out, err := pgx.CollectRows(rows, scan)
	return out, translate(err)
}

// inOrder begins the read of a page: rows come out of the index of their order, however few of them the
// planner expects. Sorting what is left behind the page costs as much as all of it, for every page.
var inOrder = pgx.TxOptions{BeginQuery: "BEGIN READ ONLY; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"}

// asWritten has a page planned for its own limit and campaign, which a generic plan does not know.
const asWritten = pgx.QueryExecModeSimpleProtocol

// page reads the next rows of a ledger: what a page costs does not depend on what is left behind it.
func page[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], name string, args ...any) (out []T, err error) {
	err = pgx.BeginTxFunc(ctx, pool, inOrder, func(t pgx.Tx) (err error) {
		out, err = read(ctx, t, scan, name, append([]any{asWritten}, args...)...)
		return err
	})
	return out, translate(err)
}

// Inbox reads messages of a campaign ("": all) after an event, in order.
func (l *Ledgers) Inbox(ctx context.Context, campaign ids.CampaignID, after string, limit int) ([]InboxFact, error) {
	return page(ctx, l.from(), scanInboxFact, "reconcile_inbox_page", after, limit, campaign)
}

// Holds reads reservations after one, in order.
func (l *Ledgers) Holds(ctx context.Context, campaign ids.CampaignID, after ids.ReservationID, limit int) ([]HoldFact, error) {
	return page(ctx, l.from(), scanHoldFact, "reconcile_holds_page", after, limit, campaign)
}

// Entries reads entries of reservations after one, in order of the reservations.
func (l *Ledgers) Entries(ctx context.Context, campaign ids.CampaignID, after ids.ReservationID, entry int64, limit int) ([]EntryFact, error) {
	return page(ctx, l.from(), scanEntryFact, "reconcile_entries_page", after, entry, limit, campaign)
}

// Buyers reads places after one.
func (l *Ledgers) Buyers(ctx context.Context, campaign ids.CampaignID, after BuyerFact, limit int) ([]BuyerFact, error) {
	return page(ctx, l.from(), scanBuyerFact, "reconcile_buyers_page", after.Campaign, after.ScopeKey, after.User, limit, campaign)
}

// Chain reads a SKU's ledger after an entry, in the order in which its stock was moved.
func (l *Ledgers) Chain(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, after int64, limit int) ([]ChainFact, error) {
	return page(ctx, l.from(), func(row pgx.CollectableRow) (ChainFact, error) {
		var c ChainFact
		err := row.Scan(&c.ID, &c.StockVersion, &c.Before[0], &c.Before[1], &c.Before[2], &c.After[0], &c.After[1], &c.After[2], &c.BusinessNo, &c.Orphan)
		return c, err
	}, "reconcile_chain_page", campaign, sku, after, limit)
}

// StockFacts reads every stock row of a campaign ("": all) with the end of its ledger, in one snapshot.
func (s *Store) StockFacts(ctx context.Context, campaign ids.CampaignID) ([]StockFact, error) {
	return read(ctx, s.pool, func(row pgx.CollectableRow) (StockFact, error) {
		var f StockFact
		err := row.Scan(&f.Campaign, &f.SKU, &f.Granted, &f.Units[0], &f.Units[1], &f.Units[2], &f.Version, &f.Entry, &f.EntryAt,
			&f.After[0], &f.After[1], &f.After[2], &f.Pending, &f.ScopeKey, &f.Raised.Fence, &f.Raised.Count, &f.Number)
		return f, err
	}, "reconcile_stocks", campaign)
}

// AdjustmentFacts reads applied adjustments after one, in order of their ids.
func (s *Store) AdjustmentFacts(ctx context.Context, campaign ids.CampaignID, after string, limit int) ([]AdjustmentFact, error) {
	return page(ctx, s.pool, func(row pgx.CollectableRow) (AdjustmentFact, error) {
		var f AdjustmentFact
		err := row.Scan(&f.ID, &f.Campaign, &f.SKU, &f.Units, &f.Booked)
		return f, err
	}, "reconcile_adjustments_page", after, limit, campaign)
}

// Look is what the shard holds of some reservations, in one snapshot of the primary.
type Look struct {
	Inbox   []InboxFact // in order of ids
	Holds   []HoldFact
	Entries []EntryFact // of one reservation in order of entries
	// Pending and Parked are reservations with effects for the mirror that have not left, or cannot.
	Pending, Parked map[ids.ReservationID]bool
	Now             time.Time // by the database's clock
}

// Look reads reservations by id.
func (s *Store) Look(ctx context.Context, list []ids.ReservationID) (Look, error) {
	out := Look{Pending: map[ids.ReservationID]bool{}, Parked: map[ids.ReservationID]bool{}}
	events, aggregates := make([]string, len(list)), make([]string, len(list))
	for i, id := range list {
		events[i], aggregates[i] = ids.EventID(id), requestAggregate(id)
	}
	err := s.snapshot(ctx, func(t pgx.Tx) (err error) {
		if out.Inbox, err = read(ctx, t, scanInboxFact, "reconcile_inbox_of", events); err != nil {
			return err
		}
		if out.Holds, err = read(ctx, t, scanHoldFact, "reconcile_holds_of", list); err != nil {
			return err
		}
		if out.Entries, err = read(ctx, t, scanEntryFact, "reconcile_entries_of", list); err != nil {
			return err
		}
		rows, err := t.Query(ctx, sql("reconcile_effects_of"), aggregates)
		if err != nil {
			return err
		}
		var aggregate, state string
		if _, err := pgx.ForEachRow(rows, []any{&aggregate, &state}, func() error {
			id := ids.ReservationID(aggregate[len(requestAggregate("")):])
			out.Pending[id], out.Parked[id] = out.Pending[id] || state == "PENDING", out.Parked[id] || state == "PARKED"
			return nil
		}); err != nil {
			return err
		}
		return t.QueryRow(ctx, sql("shard_now")).Scan(&out.Now)
	})
	return out, translate(err)
}

// Places reads the places of users, by campaign, scope key and user.
func (s *Store) Places(ctx context.Context, of []BuyerFact) ([]BuyerFact, error) {
	campaigns, scopes, users := make([]string, len(of)), make([]string, len(of)), make([]string, len(of))
	for i, b := range of {
		campaigns[i], scopes[i], users[i] = string(b.Campaign), b.ScopeKey, string(b.User)
	}
	return read(ctx, s.pool, scanBuyerFact, "reconcile_buyers_of", campaigns, scopes, users)
}

// snapshot runs reads on one view of the primary.
func (s *Store) snapshot(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

func scanInboxFact(row pgx.CollectableRow) (InboxFact, error) {
	var f InboxFact
	err := row.Scan(&f.Event, &f.Reservation, &f.Request, &f.Campaign, &f.SKU, &f.User, &f.Quantity, &f.Outcome, &f.Reason,
		&f.Build.Fence, &f.Build.Count, &f.Topic, &f.ReceivedAt)
	return f, err
}

func scanHoldFact(row pgx.CollectableRow) (HoldFact, error) {
	var f HoldFact
	err := row.Scan(&f.Reservation, &f.Request, &f.Campaign, &f.SKU, &f.User, &f.Quantity, &f.State, &f.Reason, &f.CreatedAt, &f.UpdatedAt,
		&f.Order, &f.OrderQuantity, &f.OrderState, &f.OrderVersion, &f.OverdueS, &f.Paid, &f.Buyer, &f.Tokens, &f.TokenRows)
	return f, err
}

func scanEntryFact(row pgx.CollectableRow) (EntryFact, error) {
	var f EntryFact
	err := row.Scan(&f.ID, &f.Campaign, &f.SKU, &f.Action, &f.Reservation, &f.Available, &f.Reserved, &f.Confirmed, &f.StockVersion, &f.Reversed)
	return f, err
}

func scanBuyerFact(row pgx.CollectableRow) (BuyerFact, error) {
	var f BuyerFact
	err := row.Scan(&f.Campaign, &f.ScopeKey, &f.User, &f.Reservation, &f.Orphan)
	return f, err
}
