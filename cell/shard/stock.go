package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// StockFacts is one stock row. granted = available + reserved + confirmed always (I2).
type StockFacts struct {
	Campaign          ids.CampaignID
	SKU               ids.SKUID
	Granted           int32
	Available         int32
	Reserved          int32
	Confirmed         int32
	Released          int64 // a flow, not part of the sum
	Version           int64 // grows by one with every ledger entry
	AdjustmentVersion int64 // fence version of LastNumber
	LastNumber        int64
	LastAdjustmentID  string
	BookRecordID      string
}

// Stocks reads every stock row in one snapshot and sets the gauge of units by state from it.
func (s *Store) Stocks(ctx context.Context) ([]StockFacts, error) {
	rows, err := s.pool.Query(ctx, sql("stock_all"))
	if err != nil {
		return nil, translate(err)
	}
	all, err := pgx.CollectRows(rows, scanStock)
	if err != nil {
		return nil, translate(err)
	}
	var reserved, confirmed, released int64
	for _, f := range all {
		reserved += int64(f.Reserved)
		confirmed += int64(f.Confirmed)
		released += f.Released
	}
	s.metrics.reservations.WithLabelValues("RESERVED").Set(float64(reserved))
	s.metrics.reservations.WithLabelValues("CONFIRMED").Set(float64(confirmed))
	s.metrics.reservations.WithLabelValues("RELEASED").Set(float64(released))
	return all, nil
}

// Stock reads one stock row; ErrNotFound: the shard does not sell this.
func (s *Store) Stock(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID) (StockFacts, error) {
	rows, err := s.pool.Query(ctx, sql("stock_one"), campaign, sku)
	if err != nil {
		return StockFacts{}, translate(err)
	}
	f, err := pgx.CollectExactlyOneRow(rows, scanStock)
	if errors.Is(err, pgx.ErrNoRows) {
		return StockFacts{}, ErrNotFound
	}
	return f, translate(err)
}

func scanStock(row pgx.CollectableRow) (StockFacts, error) {
	var f StockFacts
	err := row.Scan(&f.Campaign, &f.SKU, &f.Granted, &f.Available, &f.Reserved, &f.Confirmed, &f.Released, &f.Version,
		&f.AdjustmentVersion, &f.LastNumber, &f.LastAdjustmentID, &f.BookRecordID)
	return f, err
}

// Ledger actions (contract, section 8).
const (
	actionGrant   = "GRANT"
	actionReturn  = "RETURN"
	actionReserve = "RESERVE"
	actionConfirm = "CONFIRM"
	actionRelease = "RELEASE"
	actionRestock = "RESTOCK"
)

// move is one ledger entry to be: what happens to a stock row, and under which business number.
type move struct {
	campaign   ids.CampaignID
	sku        ids.SKUID
	action     string
	businessNo string
	available  int32
	reserved   int32
	confirmed  int32
	released   int32
}

// moves are applied together, in order.
type moves []move

// args renders the arrays of stock_move.
func (m moves) args(fenceVersion int64, source, actor string) []any {
	n := len(m)
	campaign, sku, action, no := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	available, reserved, confirmed, released := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	for i, e := range m {
		campaign[i], sku[i], action[i], no[i] = string(e.campaign), string(e.sku), e.action, e.businessNo
		available[i], reserved[i], confirmed[i], released[i] = e.available, e.reserved, e.confirmed, e.released
	}
	return []any{campaign, sku, action, no, available, reserved, confirmed, released, fenceVersion, source, actor}
}

// apply moves the stock in its own round trip. A stock row that is missing, or a move that does not
// fit, is an error; nothing remains of it because the caller rolls back.
func (t tx) apply(ctx context.Context, m moves, source, actor string) error {
	if len(m) == 0 {
		return nil
	}
	tag, err := t.Exec(ctx, sql("stock_move"), m.args(t.writer.FenceVersion, source, actor)...)
	if err != nil {
		return err
	}
	return exactly("ledger entries", tag.RowsAffected(), len(m))
}

// exactly compares rows affected with what was meant.
func exactly(what string, got int64, want int) error {
	if got != int64(want) {
		return fmt.Errorf("%w: wrote %d %s where %d were meant", ErrConflict, got, what, want)
	}
	return nil
}
