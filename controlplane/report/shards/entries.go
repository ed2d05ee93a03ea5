package shards

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Entry is one ledger entry; User and Order are set for a RESERVE.
type Entry struct {
	ID               int64
	Action, Business string
	Before, After    Levels
	FenceVersion     int64
	At               time.Time
	User, Order      string
}

// Levels are the three figures of a stock row.
type Levels struct{ Available, Reserved, Confirmed int64 }

// Entries reads what a SKU's ledger grew by since an entry id, at most limit of them, in order.
func (s *Snapshot) Entries(ctx context.Context, campaign, sku string, since int64, limit int) ([]Entry, error) {
	return collect(ctx, s, func(row pgx.CollectableRow) (Entry, error) {
		var e Entry
		err := row.Scan(&e.ID, &e.Action, &e.Business, &e.Before.Available, &e.Before.Reserved, &e.Before.Confirmed,
			&e.After.Available, &e.After.Reserved, &e.After.Confirmed, &e.FenceVersion, &e.At, &e.User, &e.Order)
		return e, err
	}, entriesSQL, campaign, sku, since, limit)
}

// FenceChange is one row of the fence's history.
type FenceChange struct {
	Version int64
	State   string
	At      time.Time
}

// FenceHistory reads every change of the fence, oldest first.
func (s *Snapshot) FenceHistory(ctx context.Context) ([]FenceChange, error) {
	return collect(ctx, s, func(row pgx.CollectableRow) (FenceChange, error) {
		var c FenceChange
		err := row.Scan(&c.Version, &c.State, &c.At)
		return c, err
	}, historySQL)
}
