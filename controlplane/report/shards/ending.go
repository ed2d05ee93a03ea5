package shards

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/ending.sql
var endingSQL string

//go:embed sql/unsold.sql
var unsoldSQL string

// Ending is what one shard says of a campaign that is over.
type Ending struct {
	// Reserved and UnderReview count reservations that are neither sold nor released.
	Reserved, UnderReview int64
	// Unpaid, Closed and Paid count orders; PaidKept those of Paid whose money was not
	// given back.
	Unpaid, Closed, Paid, PaidKept int64
	// Refunds counts payments that are to be refunded and are not yet.
	Refunds int64
	// OutboxPending and OutboxParked count effects and events that have not left.
	OutboxPending, OutboxParked int64
	// Parked counts messages of the log that a person has to look at.
	Parked int64
	// Findings counts those that are not REPAIRED, other than about a parked message.
	Findings int64
}

// Ending reads what is not over yet of a campaign.
func (s *Snapshot) Ending(ctx context.Context, campaign string) (e Ending, err error) {
	err = s.tx.QueryRow(ctx, endingSQL, campaign).Scan(&e.Reserved, &e.UnderReview, &e.Unpaid, &e.Closed, &e.Paid, &e.PaidKept, &e.Refunds,
		&e.OutboxPending, &e.OutboxParked, &e.Parked, &e.Findings)
	if err != nil {
		return Ending{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return e, nil
}

// Unsold is one stock row with what its unsold units are.
type Unsold struct {
	SKU                                     string
	Granted, Available, Reserved, Confirmed int64
	// UnderReview are reserved units of reservations in MANUAL_REVIEW; Parked the units of parked messages, which
	// are available in the shard and held by the mirror.
	UnderReview, Parked int64
	// ReleasedAfterEnd became available after the sale had ended.
	ReleasedAfterEnd int64
}

// Unsold reads the stock rows of a campaign whose sale ended at end.
func (s *Snapshot) Unsold(ctx context.Context, campaign string, end time.Time) ([]Unsold, error) {
	return collect(ctx, s, func(row pgx.CollectableRow) (Unsold, error) {
		var u Unsold
		err := row.Scan(&u.SKU, &u.Granted, &u.Available, &u.Reserved, &u.Confirmed, &u.UnderReview, &u.Parked, &u.ReleasedAfterEnd)
		return u, err
	}, unsoldSQL, campaign, end)
}
