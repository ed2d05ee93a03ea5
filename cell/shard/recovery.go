package shard

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// replay is how a partition is read again after the shard went back in time: messages below upto were
// decided before, and that decision was lost. They make the same orders again (an order's id comes from
// its reservation's) although the shard settles only, and are judged by what held at their offset.
type replay struct {
	upto   int64 // 0: nothing is read again
	fences []pastFence
	begun  time.Time // when the recovery began; zero: the shard was never recovered
}

// begunAt is when the recovery before or at a fence version began, as this process read it once.
type begunAt struct {
	version int64
	at      time.Time
}

// clocksApart is more than the clocks of a mirror and its shard may differ.
const clocksApart = time.Minute

// mayBePaid tells whether an order of the message may have been made, and paid, in the time that was lost:
// nobody saw the last moments of it, so that a message above upto may be of them. One that was admitted
// after the recovery began is not.
func (r replay) mayBePaid(m *Message) bool {
	return r.again(m.Offset) || !r.begun.IsZero() && m.AdmittedAt.Before(r.begun.Add(clocksApart))
}

// pastFence is a fence that found the partition at an offset: a message of a lower version from there on
// was refused.
type pastFence struct{ version, from int64 }

// again tells whether the message at an offset was decided before.
func (r replay) again(offset int64) bool { return offset < r.upto }

// messagesFrom is the lowest version that was taken at an offset.
func (r replay) messagesFrom(offset int64) int64 {
	from := int64(1)
	for _, f := range r.fences {
		if offset >= f.from {
			from = max(from, f.version)
		}
	}
	return from
}

// readReplay looks, where the shard settles only, whether the batch's partition is read again.
func (r *batchRun) readReplay(ctx context.Context) error {
	if r.direct {
		return nil
	}
	if err := r.readBegun(ctx); err != nil || r.facts.replay.begun.IsZero() || r.facts.state != SettleOnly {
		return err
	}
	at := []any{r.in.From.Topic, r.in.From.Partition, r.in.From.TopicID}
	if err := r.tx.QueryRow(ctx, sql("recovery_read"), at...).Scan(&r.facts.replay.upto); err != nil || r.facts.replay.upto == 0 {
		return err
	}
	rows, err := r.tx.Query(ctx, sql("recovery_fences"), at...)
	if err != nil {
		return err
	}
	r.facts.replay.fences, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f pastFence, err error) {
		return f, row.Scan(&f.version, &f.from)
	})
	return err
}

// readBegun asks once for each fence version: a recovery raises it in the transaction that begins it.
func (r *batchRun) readBegun(ctx context.Context) error {
	version := r.tx.writer.FenceVersion
	if last := r.store.recoveryBegun.Load(); last != nil && last.version == version {
		r.facts.replay.begun = last.at
		return nil
	}
	var known bool
	if err := r.tx.QueryRow(ctx, sql("recovery_known")).Scan(&known); err != nil {
		return err
	}
	var at *time.Time
	if known {
		if err := r.tx.QueryRow(ctx, sql("recovery_begun")).Scan(&at); err != nil {
			return err
		}
	}
	r.facts.replay.begun = orZero(at)
	r.store.recoveryBegun.Store(&begunAt{version, r.facts.replay.begun})
	return nil
}

// recoveryAttempt is the attempt of an order that may have been paid in the time that was lost. No caller can
// name one so (ids.ParsePaymentID): the channel is asked by the order.
const recoveryAttempt ids.PaymentID = "*recovery"

// queueAttempts gives every order that was, or may have been, made again an attempt of which nobody knows.
func (r *batchRun) queueAttempts(w *writes) {
	var orders []string
	for i := range r.out.Decisions {
		if m := &r.in.Messages[i]; r.out.Decisions[i].Outcome == Ordered && r.facts.replay.mayBePaid(m) {
			orders = append(orders, string(m.Reservation.Order()))
		}
	}
	if len(orders) > 0 {
		w.queue("attempts of orders made again", len(orders), "recovery_attempts", orders)
	}
}
