package shard

import (
	"context"
	"errors"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// DirectAsk is one request that wants an order at once: no mirror admitted it and no log carries it.
type DirectAsk struct {
	Campaign        ids.CampaignID
	SKU             ids.SKUID
	User            ids.UserID
	Request         ids.RequestID
	Quantity        int32
	Domain          string
	PermitExpiresAt time.Time
	DeviceID        string
	RiskTier        string
	Traceparent     string
	// Baseline is how many orders per second the shard alone may make of the ask's mirror while Redis
	// is away; 0: the campaign has no mirror (admission: DATABASE).
	Baseline float64
}

// DirectOutcome is what became of a DirectAsk.
type DirectOutcome uint8

// The outcomes. Only DirectOrdered writes a row; every other ask may be asked again.
const (
	// DirectUndecided is the zero outcome and never answered.
	DirectUndecided DirectOutcome = iota
	// DirectOrdered: there is an order now. Row tells it.
	DirectOrdered
	// DirectReplayed: the request has its outcome from before. Row tells it as it is now.
	DirectReplayed
	// DirectConflict: the request id was used with other parameters.
	DirectConflict
	// DirectHeld: another request of the user holds the place. Row tells it; Reason says how it stands.
	DirectHeld
	// DirectSoldOut: fewer units than asked for. Left tells how many.
	DirectSoldOut
	// DirectNotStarted: before open_at by the shard's clock. Opens tells how long.
	DirectNotStarted
	// DirectEnded: at or after close_at, or the campaign was cancelled.
	DirectEnded
	// DirectPermitExpired: by the shard's clock.
	DirectPermitExpired
	// DirectMoved: the user's bucket is not open here.
	DirectMoved
	// DirectThrottled: the baseline's rate is used up.
	DirectThrottled
	// DirectClosed: the shard alone may not sell here now: a mirror does or is being built.
	DirectClosed
	// DirectUnknown: the shard has no rules of this campaign and SKU, or none that allow this quantity.
	DirectUnknown
	// DirectRefused: another rule of the shard refused; Reason names it.
	DirectRefused
	// DirectClear: nothing stands against a first attempt (PrecheckDirect).
	DirectClear

	directOutcomes = iota
)

// DirectOutcomes lists every outcome but DirectUndecided.
func DirectOutcomes() []DirectOutcome {
	out := make([]DirectOutcome, 0, directOutcomes-1)
	for o := DirectOrdered; o < directOutcomes; o++ {
		out = append(out, o)
	}
	return out
}

// DirectResult is the answer to one DirectAsk.
type DirectResult struct {
	Outcome DirectOutcome
	Reason  reservation.Reason // DirectHeld, DirectRefused
	Row     RequestRow         // DirectOrdered, DirectReplayed, DirectHeld
	Left    int32              // DirectSoldOut
	Opens   time.Duration      // DirectNotStarted
}

// directTries bounds how often a commit of unknown outcome is looked at again.
const directTries = 3

// ApplyDirect orders for customers themselves, in the same transaction as a batch of the log: fence,
// stock, inbox and buyers, deduct, reservation, order, ledger, outbox. The inbox row is keyed by the
// request: its repeat reads the row, under whatever build it was written. Nonces of permits are not
// looked at: the buyer row decides.
//
// The asks must be of users that differ. Errors: ErrState, ErrFenced, ErrNoWriter (this process may
// not order), ErrBadData (halve the asks to find the one), ErrUnknownCommit (the repeat of the asks
// tells), ErrUnavailable.
func (s *Store) ApplyDirect(ctx context.Context, asks []DirectAsk) ([]DirectResult, error) {
	mine := map[ids.ReservationID]bool{} // ordered by a commit whose outcome is unknown
	for try := 1; ; try++ {
		results, err := s.applyDirect(ctx, asks, mine)
		if !errors.Is(err, ErrUnknownCommit) || try == directTries {
			return results, err
		}
	}
}

// applyDirect is one attempt. What an earlier attempt may have committed is answered as ordered now.
func (s *Store) applyDirect(ctx context.Context, asks []DirectAsk, mine map[ids.ReservationID]bool) ([]DirectResult, error) {
	batch := directBatch(asks)
	if err := batch.check(); err != nil {
		return nil, err
	}
	started := s.clock.Now()
	var run directRun
	err := s.inTx(ctx, "apply_direct", needActive, func(ctx context.Context, t tx) error {
		run = directRun{
			batchRun: batchRun{store: s, tx: t, in: directBatch(asks), direct: true, facts: batchFacts{direct: true}},
			asks:     asks, results: make([]DirectResult, len(asks)),
		}
		return run.apply(ctx)
	})
	for i := range run.results {
		r := &run.results[i]
		switch {
		case r.Outcome == DirectReplayed && mine[r.Row.Reservation]:
			r.Outcome = DirectOrdered
		case r.Outcome == DirectOrdered && errors.Is(err, ErrUnknownCommit):
			mine[r.Row.Reservation] = true
		}
	}
	if err != nil {
		return nil, err
	}
	s.metrics.commit.Observe(s.clock.Now().Sub(started).Seconds())
	for reason, n := range run.failures {
		s.metrics.stockFailures.WithLabelValues(reason).Add(float64(n))
	}
	s.alarm(run.missing)
	return run.results, nil
}

// directTopic stands where a message of the log has its topic.
const directTopic = "direct"

// directBatch is the asks as messages of no log. Build and reservation are given under the locks.
func directBatch(asks []DirectAsk) Batch {
	b := Batch{From: Position{Topic: directTopic}, To: int64(len(asks)), Messages: make([]Message, len(asks))}
	for i := range asks {
		a := &asks[i]
		b.Messages[i] = Message{Offset: int64(i), Traceparent: a.Traceparent, Admission: reservation.Admission{
			Request: a.Request, Campaign: a.Campaign, SKU: a.SKU, User: a.User, Quantity: a.Quantity, Domain: a.Domain,
			Fingerprint:     ids.Fingerprint(a.Campaign, a.SKU, a.User, a.Quantity),
			PermitExpiresAt: a.PermitExpiresAt, DeviceID: a.DeviceID, RiskTier: a.RiskTier,
		}}
	}
	return b
}
