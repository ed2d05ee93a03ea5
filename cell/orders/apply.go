package orders

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// errSeek: the stored position is another one; it was sought, and what was fetched is dropped.
var errSeek = errors.New("the position was sought anew")

// consume applies fetched records of one partition, in order, until they are done, the partition is
// taken away, or the position turns out to be another.
func (c *Consumer) consume(p *partition, records []*kgo.Record) {
	items := make([]item, 0, len(records))
	var blocked error
	for _, r := range records {
		it, err := decode(r)
		if err != nil { // written by a newer program: what lies before it is still ours
			blocked = err
			break
		}
		items = append(items, it)
	}
	for _, run := range cut(items, p.position().Next, c.cfg.BatchMax) {
		if err := c.applyRun(p, run); err != nil {
			if !errors.Is(err, errSeek) && p.ctx.Err() == nil {
				c.log.Error("partition stops", telemetry.Event, "orders_partition_failed", telemetry.Partition, p.id, telemetry.Error, err)
				c.reseek(p)
			}
			return
		}
	}
	if blocked != nil {
		c.log.Error("a newer program wrote this message; upgrade", telemetry.Event, "orders_schema_newer", telemetry.Partition, p.id, telemetry.Error, blocked)
		if c.clock.Sleep(p.ctx, c.cfg.RetryMax) == nil {
			c.seek(p.id, p.position().Next)
		}
	}
}

// applyRun applies a run, with back-off, for as long as the partition is ours.
func (c *Consumer) applyRun(p *partition, r run) error {
	for attempt := 0; ; attempt++ {
		rest, err := c.try(p, r)
		if err == nil && rest == nil {
			return nil
		}
		if err == nil { // the shard settles only: the rest waits
			r = *rest
			err = shard.ErrState
		}
		switch {
		case errors.Is(err, shard.ErrPositionLost), errors.Is(err, shard.ErrPositionMismatch):
			c.log.Info("batch dropped", telemetry.Event, "orders_position_lost", telemetry.Partition, p.id, telemetry.Error, err)
			c.metrics.outcome("LOST")
			c.reseek(p)
			return errSeek
		case errors.Is(err, shard.ErrBadData):
			return c.narrow(p, r, err)
		case errors.Is(err, shard.ErrInvalid):
			return err // a mistake of this program: do not turn it into a hot loop of halves
		case errors.Is(err, shard.ErrUnknownCommit):
			c.log.Warn("commit outcome unknown; the position will tell", telemetry.Event, "orders_unknown_commit", telemetry.Partition, p.id, telemetry.Error, err)
		case errors.Is(err, shard.ErrState), errors.Is(err, shard.ErrNoWriter), errors.Is(err, shard.ErrFenced):
			c.log.Debug("waiting to be allowed to write", telemetry.Event, "orders_waiting", telemetry.Partition, p.id, telemetry.Error, err)
		default:
			c.log.Warn("batch not applied", telemetry.Event, "orders_retry", telemetry.Partition, p.id, telemetry.Offset, r.oldest.offset,
				telemetry.Error, err, telemetry.RetryCount, attempt)
		}
		if err := c.clock.Sleep(p.ctx, c.backoff(attempt)); err != nil {
			return err
		}
	}
}

// try applies a run once. rest is what a settle-only shard left.
func (c *Consumer) try(p *partition, r run) (rest *run, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing {
		if err := c.store.StartPosition(p.ctx, p.at); err != nil {
			return nil, err
		}
		p.missing = false
	}
	switch {
	case r.barrier != nil:
		raised, err := c.store.ApplyBarrier(p.ctx, p.at, r.next, r.epoch, *r.barrier)
		if err != nil {
			return nil, err
		}
		c.log.Info("barrier consumed", telemetry.Event, "orders_barrier", telemetry.CampaignID, r.barrier.Campaign, "build", r.barrier.Build.String(), "raised", raised)
	case r.broken != nil:
		if err := c.store.ApplyParking(p.ctx, p.at, r.next, r.epoch, *r.broken); err != nil {
			return nil, err
		}
		c.parked(p, r.broken)
	default:
		result, err := c.order(p, r)
		if err != nil {
			return nil, err
		}
		c.note(r, result)
		if taken := len(result.Decisions); taken < len(r.messages) {
			left := r
			left.messages, left.values = r.messages[taken:], r.values[taken:]
			p.moved(result.Next, r.epoch)
			return &left, nil
		}
	}
	p.moved(r.next, r.epoch)
	return nil, nil
}

// order is the transaction of a run of messages, under a span of the requests that they come from.
func (c *Consumer) order(p *partition, r run) (result shard.BatchResult, err error) {
	ctx, span := telemetry.StartBatch(p.ctx, "orders.batch", len(r.messages), func(i int) string { return r.messages[i].Traceparent })
	defer func() { telemetry.EndSpan(span, err) }()
	return c.store.ApplyOrders(ctx, shard.Batch{From: p.at, To: r.next, Epoch: r.epoch, Messages: r.messages})
}

// narrow finds the message whose data the database refuses, by halving, and parks it.
func (c *Consumer) narrow(p *partition, r run, cause error) error {
	if len(r.messages) > 1 {
		first, second := r.halves()
		if err := c.applyRun(p, first); err != nil {
			return err
		}
		return c.applyRun(p, second)
	}
	if len(r.messages) == 0 {
		return cause
	}
	m := r.messages[0]
	c.log.Error("the database refuses a message's data", telemetry.Event, "orders_bad_data", telemetry.ReservationID, m.Reservation, telemetry.Error, cause)
	parking := shard.Parking{Offset: m.Offset, ErrorClass: shard.ErrorClass(cause), Value: r.values[0], Message: &m}
	return c.applyRun(p, run{broken: &parking, oldest: r.oldest, next: r.next, epoch: r.epoch})
}

func (c *Consumer) parked(p *partition, x *shard.Parking) {
	c.applied.Add(1)
	c.metrics.outcome("PARKED")
	args := []any{telemetry.Event, "orders_parked", telemetry.Partition, p.id, telemetry.Offset, x.Offset, telemetry.ErrorClass, x.ErrorClass}
	if x.Message != nil {
		args = append(args, telemetry.ReservationID, x.Message.Reservation)
	}
	c.log.Error("message parked for a person", args...)
}

// note counts what a batch decided.
func (c *Consumer) note(r run, result shard.BatchResult) {
	c.metrics.batch.Observe(float64(len(result.Decisions)))
	c.applied.Add(int64(len(result.Decisions)))
	c.metrics.queue.Observe(max(0, c.clock.Now().Sub(r.oldest.timestamp).Seconds()))
	for i, d := range result.Decisions {
		switch {
		case d.Duplicate:
			c.metrics.outcome("DUPLICATE")
		case d.Outcome == shard.Ordered:
			c.metrics.outcome("ORDERED")
			c.metrics.endToEnd.Observe(max(0, result.At.Sub(r.messages[i].AdmittedAt).Seconds()))
		default:
			c.metrics.outcome(string(d.Reason))
		}
	}
}

func (p *partition) position() shard.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// moved is called under p.mu.
func (p *partition) moved(next int64, epoch int32) { p.at.Next, p.at.Epoch = next, epoch }
