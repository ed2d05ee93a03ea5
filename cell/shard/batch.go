package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// Message is one admission at its place in the log.
type Message struct {
	Offset      int64
	Traceparent string
	reservation.Admission
}

// Batch is a run of messages of one partition, of users that differ, between two positions. To is
// above the last message's offset; what lies between without a message (markers, barriers applied
// before, compaction) is skipped by it.
type Batch struct {
	From     Position // the expected stored position
	To       int64    // the next offset after the batch
	Epoch    int32    // leader epoch of its last record
	Messages []Message
}

// Decision is what became of one message.
type Decision struct {
	Outcome   InboxOutcome // ORDERED or REJECTED; empty for a duplicate
	Duplicate bool         // it had its outcome before; nothing was written
	Reason    reservation.Reason
	ExpiresAt time.Time // ORDERED

	winner winner // who holds the place, for ALREADY_… and ORDER_CLOSED
}

// BatchResult is what a committed batch decided.
type BatchResult struct {
	// Decisions are one per message, in order; fewer than the messages when the shard only settles.
	Decisions []Decision
	// Next is the stored position now.
	Next int64
	// At is the database's time of the decisions.
	At time.Time
}

// ApplyOrders applies a batch: position, stock, inbox, buyers, orders, ledger and outbox in one
// transaction. Errors: ErrPositionLost and ErrPositionMismatch (drop the batch, look at the stored
// position); ErrBadData (halve the batch to find the message); ErrState (the shard settles only and
// the first message needs more: wait); ErrShardBehind; ErrUnknownCommit (apply the same batch again:
// a batch that did commit is then ErrPositionLost).
func (s *Store) ApplyOrders(ctx context.Context, b Batch) (BatchResult, error) {
	if err := b.check(); err != nil {
		return BatchResult{}, err
	}
	started := s.clock.Now()
	var out BatchResult
	var failures map[string]int
	var missing needs
	err := s.inTx(ctx, "apply_orders", needSettle, func(ctx context.Context, t tx) error {
		run := batchRun{store: s, tx: t, in: b}
		if err := run.apply(ctx); err != nil {
			return err
		}
		out, failures, missing = run.out, run.failures, run.missing
		return nil
	})
	if err != nil {
		return BatchResult{}, err
	}
	s.metrics.commit.Observe(s.clock.Now().Sub(started).Seconds())
	for reason, n := range failures {
		s.metrics.stockFailures.WithLabelValues(reason).Add(float64(n))
	}
	s.alarm(missing)
	return out, nil
}

func (b *Batch) check() error {
	seen := make(map[ids.UserID]struct{}, len(b.Messages))
	last := b.From.Next - 1
	for i := range b.Messages {
		m := &b.Messages[i]
		if _, twice := seen[m.User]; twice {
			return fmt.Errorf("%w: a batch ends before a user's second message", ErrInvalid)
		}
		seen[m.User] = struct{}{}
		if m.Offset <= last {
			return fmt.Errorf("%w: offset %d of a batch must be above %d", ErrInvalid, m.Offset, last)
		}
		last = m.Offset
	}
	if b.To <= last {
		return fmt.Errorf("%w: the position after a batch must be above %d", ErrInvalid, last)
	}
	return nil
}

// batchRun is one attempt at a batch.
type batchRun struct {
	store    *Store
	tx       tx
	in       Batch
	facts    batchFacts
	now      time.Time
	holds    holdCounts
	gaveUp   []int // candidates that had their place and get no order
	missing  needs // units that are available and have no token row
	out      BatchResult
	failures map[string]int
	direct   bool // asked by customers themselves (direct.go): no log, no position
}

func (r *batchRun) apply(ctx context.Context) error {
	// 1. Lock position and stock, then read everything that judging needs.
	if err := r.lockAndRead(ctx); err != nil {
		return err
	}
	// 2. Judge what needs neither buyer nor stock.
	candidates, err := r.judge()
	if err != nil {
		return err
	}
	// 3. One place per user.
	taken, err := r.takePlaces(ctx, candidates)
	if err != nil {
		return err
	}
	// 4. Deduct for those who fit, in offset order.
	r.deduct(taken)
	if err := r.tx.noteMissing(ctx, r.missing); err != nil {
		return err
	}
	// 5. Write what was decided.
	return r.write(ctx)
}

// judge fills the decisions of all but the candidates, and cuts the batch before the first
// candidate when the shard only settles.
func (r *batchRun) judge() ([]int, error) {
	r.out.Decisions = make([]Decision, len(r.in.Messages))
	r.out.Next = r.in.To
	var candidates []int
	for i := range r.in.Messages {
		m := &r.in.Messages[i]
		facts, err := r.facts.of(m, i, r.tx.writer.FenceVersion)
		if err != nil {
			return nil, err
		}
		switch v := reservation.Judge(&m.Admission, facts); {
		case v.Duplicate:
			r.out.Decisions[i] = Decision{Duplicate: true}
		case !v.Candidate():
			r.out.Decisions[i] = Decision{Outcome: Rejected, Reason: v.Reason}
		case r.facts.unreadable(m):
			return nil, fmt.Errorf("%w: rules of campaign %s cannot be read (message at offset %d)", ErrBadData, m.Campaign, m.Offset)
		case r.facts.state == Active, r.facts.replay.again(m.Offset):
			candidates = append(candidates, i)
		case i == 0:
			return nil, fmt.Errorf("%w: the first message needs an ACTIVE fence", ErrState)
		default: // settle only: what can only be rejected is taken, the rest waits
			r.in.Messages, r.out.Decisions, r.out.Next = r.in.Messages[:i], r.out.Decisions[:i], m.Offset
			return nil, nil
		}
	}
	return candidates, nil
}

// deduct is greedy in offset order: what does not fit is skipped, and its place is given up.
func (r *batchRun) deduct(taken []int) {
	r.failures, r.missing, r.gaveUp = map[string]int{}, needs{}, nil
	for _, i := range taken {
		m := &r.in.Messages[i]
		k := skuKey{m.Campaign, m.SKU}
		rules := r.facts.rules[k]
		switch left := r.left(k, m.Quantity); {
		case !r.facts.replay.again(m.Offset) && !r.holds.allow(rules.Holds, i, m): // one that is read again was allowed once
			r.refuse(i, reservation.TooManyUnpaid, "too_many_unpaid")
		case left < m.Quantity && r.facts.replay.again(m.Offset):
			r.out.Decisions[i] = Decision{Outcome: Parked} // it had its units once, and keeps its place
			r.failures["recovery_does_not_fit"]++
		case left < m.Quantity:
			r.refuse(i, reservation.SoldOut, "sold_out")
		default:
			r.facts.available[k] -= m.Quantity
			if _, tokens := r.facts.free[k]; tokens {
				r.facts.free[k] -= m.Quantity
			}
			r.holds.add(m)
			r.out.Decisions[i] = Decision{Outcome: Ordered, ExpiresAt: r.now.Add(rules.PaymentTTL(m.RiskTier))}
		}
	}
	r.out.At = r.now
}

// left is what can be had of a SKU: its available units and, in TOKEN mode, no more than have a row.
func (r *batchRun) left(k skuKey, wanted int32) int32 {
	available := r.facts.available[k]
	free, tokens := r.facts.free[k]
	if !tokens || free >= min(available, wanted) {
		return available
	}
	r.missing[k] = max(r.missing[k], min(available, wanted)-free)
	return free
}

// refuse gives up the place of a candidate.
func (r *batchRun) refuse(i int, reason reservation.Reason, failure string) {
	r.out.Decisions[i] = Decision{Outcome: Rejected, Reason: reason}
	r.failures[failure]++
	r.gaveUp = append(r.gaveUp, i)
}
