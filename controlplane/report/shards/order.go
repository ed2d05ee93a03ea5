package shards

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// OrderFacts is one order as its shard has it, with all that was paid and given back.
type OrderFacts struct {
	ID, Reservation, Request, Campaign, SKU, User string
	Quantity                                      int64
	Amount, Currency, State                       string
	Version                                       int64
	CreatedAt, ExpiresAt                          time.Time
	PaidAt, ClosedAt                              *time.Time // nil: not
	ReservationState, Reason                      string
	Payments                                      []Payment
	Refunds                                       []Refund
}

// Payment is one payment attempt.
type Payment struct {
	ID, Amount, Currency, State, Refund string
	CreatedAt, UpdatedAt                time.Time
}

// Refund is one refund.
type Refund struct {
	ID, Payment, Amount, Currency string
	Part                          bool
	Cause, Actor, Reason, State   string
	Restocked                     bool
	Asks                          int32
	Answer                        string
	RequestedAt                   time.Time
	RefundedAt                    *time.Time // nil: not yet
}

// Order reads one order; false: the shard has none of this id. A shard that is a step behind this
// program has no refunds to tell of.
func (s *Snapshot) Order(ctx context.Context, id string) (OrderFacts, bool, error) {
	found, err := collect(ctx, s, func(row pgx.CollectableRow) (o OrderFacts, err error) {
		err = row.Scan(&o.ID, &o.Reservation, &o.Request, &o.Campaign, &o.SKU, &o.User, &o.Quantity, &o.Amount, &o.Currency, &o.State, &o.Version,
			&o.CreatedAt, &o.ExpiresAt, &o.PaidAt, &o.ClosedAt, &o.ReservationState, &o.Reason)
		return o, err
	}, orderSQL, id)
	if err != nil || len(found) == 0 {
		return OrderFacts{}, false, err
	}
	o := found[0]
	if o.Payments, err = collect(ctx, s, pgx.RowToStructByPos[Payment], paymentsSQL, id); err != nil {
		return OrderFacts{}, false, err
	}
	var has bool
	if err := s.tx.QueryRow(ctx, hasRefundsSQL).Scan(&has); err != nil {
		return OrderFacts{}, false, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if has {
		o.Refunds, err = collect(ctx, s, pgx.RowToStructByPos[Refund], refundsSQL, id)
	}
	return o, err == nil, err
}
