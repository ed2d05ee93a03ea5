package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stock is one stock row.
type Stock struct {
	Campaign, SKU                           string
	Granted, Available, Reserved, Confirmed int64
	Released, Version                       int64
	AdjustmentVersion, LastNumber           int64
	LastAdjustmentID, BookRecordID          string
}

// Stocks reads the stock rows of a campaign, or of all for "".
func (s *Snapshot) Stocks(ctx context.Context, campaign string) ([]Stock, error) {
	return collect(ctx, s, func(row pgx.CollectableRow) (Stock, error) {
		var t Stock
		err := row.Scan(&t.Campaign, &t.SKU, &t.Granted, &t.Available, &t.Reserved, &t.Confirmed, &t.Released, &t.Version,
			&t.AdjustmentVersion, &t.LastNumber, &t.LastAdjustmentID, &t.BookRecordID)
		return t, err
	}, stocksSQL, campaign)
}

// Fence is the shard's fence row.
type Fence struct {
	Cell                  string
	Version, MessagesFrom int64
	State, Group          string
	Term                  int64
}

// Fence reads the fence row; pgx.ErrNoRows inside ErrUnreachable when the shard was never provisioned.
func (s *Snapshot) Fence(ctx context.Context) (Fence, error) {
	var f Fence
	err := s.tx.QueryRow(ctx, fenceSQL).Scan(&f.Cell, &f.Version, &f.MessagesFrom, &f.State, &f.Group, &f.Term)
	if err != nil {
		return Fence{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return f, nil
}

// Fault is one breach that the shard's own rows show.
type Fault struct{ Invariant, Campaign, SKU, Detail string }

// Faults checks I2, I5, I6, I7 and I8 inside the shard; at most limit rows of each kind. tokens are the
// "CAMPAIGN/SKU" in TOKEN mode: their rows are compared with counters, reservations and ledger even if
// there is none left.
func (s *Snapshot) Faults(ctx context.Context, campaign string, limit int, tokens []string) ([]Fault, error) {
	return collect(ctx, s, func(row pgx.CollectableRow) (Fault, error) {
		var f Fault
		err := row.Scan(&f.Invariant, &f.Campaign, &f.SKU, &f.Detail)
		return f, err
	}, faultsSQL, campaign, limit, append([]string{}, tokens...)) // not nil: NULL equals nothing
}

// Parked are the units of parked admissions of one build.
type Parked struct {
	Campaign, SKU, Build string
	Units                int64
}

// Parked reads the units that mirrors have taken for messages that nobody has reviewed; an
// entry without a campaign counts messages of which nobody knows whose unit they hold. It
// reads the inbox: ask where UnderWay counts parked messages.
func (s *Snapshot) Parked(ctx context.Context, campaign string) ([]Parked, error) {
	return collect(ctx, s, pgx.RowToStructByPos[Parked], parkedSQL, campaign)
}

// UnderWay counts effects not yet applied to the mirror, and parked messages.
func (s *Snapshot) UnderWay(ctx context.Context, campaign string) (effects, parked int64, err error) {
	if err := s.tx.QueryRow(ctx, quietSQL, campaign).Scan(&effects, &parked); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return effects, parked, nil
}

// Order is one order with the key over which I4 is judged.
type Order struct {
	User, Scope, ID, Reservation, State string
	Quantity                            int64
}

// Orders streams a campaign's orders in ascending (user, scope), then at most one error. perSKU: the
// purchase scope is the SKU; else it is the campaign and Scope is "*". No other call on the Snapshot
// is allowed before the stream has ended.
func (s *Snapshot) Orders(ctx context.Context, campaign string, perSKU bool) iter.Seq2[Order, error] {
	return func(yield func(Order, error) bool) {
		rows, err := s.tx.Query(ctx, ordersSQL, campaign, perSKU)
		if err != nil {
			yield(Order{}, fmt.Errorf("%w: %w", ErrUnreachable, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var o Order
			if err := rows.Scan(&o.User, &o.Scope, &o.ID, &o.Reservation, &o.State, &o.Quantity); err != nil {
				yield(Order{}, fmt.Errorf("%w: %w", ErrUnreachable, err))
				return
			}
			if !yield(o, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Order{}, fmt.Errorf("%w: %w", ErrUnreachable, err))
		}
	}
}

// RequestKey names one request.
type RequestKey struct{ Campaign, SKU, User, Request string }

// Resolved is the shard's word on the request at Index of the keys.
type Resolved struct {
	Index                                             int
	Reservation, Outcome, Reason, OrderID, OrderState string
	FenceVersion, Quantity                            int64
}

// Resolve answers what the shard knows of up to 1,000 requests; keys it does not know have no row.
func (s *Snapshot) Resolve(ctx context.Context, keys []RequestKey) ([]Resolved, error) {
	campaigns, skus, users, requests := make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		campaigns[i], skus[i], users[i], requests[i] = k.Campaign, k.SKU, k.User, k.Request
	}
	return collect(ctx, s, func(row pgx.CollectableRow) (Resolved, error) {
		var r Resolved
		err := row.Scan(&r.Index, &r.Reservation, &r.Outcome, &r.Reason, &r.OrderID, &r.OrderState, &r.FenceVersion, &r.Quantity)
		r.Index-- // ordinality counts from 1
		return r, err
	}, requestsSQL, campaigns, skus, users, requests)
}

// Event is one fact about a reservation.
type Event struct {
	At          time.Time
	Store, What string
	Fields      map[string]any
}

// Trace tells what the shard knows of an id (the kinds are in trace.sql), in order of time; at most 1,000
// facts. Empty filters match all.
func (s *Snapshot) Trace(ctx context.Context, kind, id, campaign, sku, user string) ([]Event, error) {
	return collect(ctx, s, func(row pgx.CollectableRow) (Event, error) {
		var e Event
		var fields []byte
		if err := row.Scan(&e.At, &e.Store, &e.What, &fields); err != nil {
			return Event{}, err
		}
		return e, json.Unmarshal(fields, &e.Fields)
	}, traceSQL, kind, id, campaign, sku, user)
}
