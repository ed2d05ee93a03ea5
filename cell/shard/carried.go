package shard

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
)

// rowQuerier is the pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// schemaHas tells whether the schema has what query looks for. It asks once more at every call until it
// has: a migration comes while we run.
func schemaHas(ctx context.Context, q rowQuerier, known *atomic.Bool, query string) (bool, error) {
	if known.Load() {
		return true, nil
	}
	var has bool
	if err := q.QueryRow(ctx, sql(query)).Scan(&has); err != nil {
		return false, err
	}
	known.Store(has)
	return has, nil
}

// hasCarried tells whether the schema has what handovers carry: buckets that were handed over must be met
// with their answers from the first order on.
func (s *Store) hasCarried(ctx context.Context, q rowQuerier) (bool, error) {
	return schemaHas(ctx, q, &s.carriedKnown, "carried_known")
}

// since4 is a statement's name, or that of its like on a schema of step 3.
func (s *Store) since4(name, before string) string {
	if s.carriedKnown.Load() {
		return name
	}
	return before
}

// hasReviews tells whether the schema keeps how a review ended, and the trace that an order came with.
func (s *Store) hasReviews(ctx context.Context, q rowQuerier) (bool, error) {
	return schemaHas(ctx, q, &s.reviewsKnown, "reviews_known")
}

// since5 is a statement's name, or that of its like on a schema of step 4.
func (s *Store) since5(name, before string) string {
	if s.reviewsKnown.Load() {
		return name
	}
	return before
}

// readCarried completes a request that this shard has no row of, or only a later rejection of, by the
// answer that another cell gave before a handover. An order of that cell counts as payable: its cell, which its id names, knows more.
func (s *Store) readCarried(ctx context.Context, q rowQuerier, r *RequestRow) error {
	if known, err := s.hasCarried(ctx, q); err != nil || !known || r.Found && r.Outcome != Rejected {
		return err
	}
	err := q.QueryRow(ctx, sql("carried_lookup"), r.Campaign, r.SKU, r.User, r.Request).
		Scan(&r.Reservation, &r.Quantity, &r.Fingerprint, &r.Outcome, &r.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.Found = true; r.Outcome == Ordered {
		r.Order, r.OrderState, r.ReservationState = r.Reservation.Order(), reservation.PendingPayment, reservation.Reserved
	}
	return nil
}
