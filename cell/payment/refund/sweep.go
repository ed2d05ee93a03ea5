package refund

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// CancelledRefundID is the refund of an order whose campaign was cancelled; derived, so that however
// many sweeps meet at it, it is one.
func CancelledRefundID(order ids.OrderID) string { return "cancel-" + string(order) }

// sweep is this process's place among a cancelled campaign's paid orders. Losing it costs reading
// them again, nothing else.
type sweep struct {
	at   shard.PaidOrder
	rest time.Time // by this process's clock: no look before it
}

// lookBack is how far behind its place a sweep looks again: a payment that was decided before the
// place was reached may commit after it. No transaction lives that long.
const lookBack = time.Minute

// sweepRest is the pause after a sweep came to the end of the list.
const sweepRest = 5 * time.Second

// sweepAll sweeps every cancelled campaign. One that fails does not keep the others from it, unless
// its fault is one that passes: that is the shard's, and would be theirs too.
func (l *Loop) sweepAll(ctx context.Context) error {
	var failed error
	for _, campaign := range l.cfg.Cancelled() {
		err := l.sweep(ctx, campaign)
		if err == nil {
			continue
		}
		failed = errors.Join(failed, fmt.Errorf("sweep %s: %w", campaign, err))
		if ctx.Err() != nil || shard.SafeToRetry(err) {
			break
		}
	}
	return failed
}

// sweep wants the refunds of one page. At the end of the list it goes back a little, so that orders
// paid since are met, and money of an attempt that was open when the campaign was cancelled.
func (l *Loop) sweep(ctx context.Context, campaign ids.CampaignID) error {
	s := l.sweeps[campaign]
	if s == nil {
		s = &sweep{}
		l.sweeps[campaign] = s
	}
	now := l.clock.Now()
	if now.Before(s.rest) {
		return nil
	}
	page, err := l.store.PaidOrders(ctx, campaign, s.at, l.cfg.Batch)
	if err != nil {
		return err
	}
	if len(page) == 0 {
		s.rest = now.Add(sweepRest)
		if !s.at.PaidAt.IsZero() {
			s.at = shard.PaidOrder{PaidAt: s.at.PaidAt.Add(-lookBack)}
		}
		return nil
	}
	steps := make([]shard.Step, len(page))
	for i, o := range page {
		steps[i] = shard.Step{
			Kind: shard.StepRefund, Order: o.ID, RefundID: CancelledRefundID(o.ID),
			Ask: shard.Asked{Cause: shard.RefundCancelled, Actor: "cellquota", Reason: "campaign " + string(campaign) + " was cancelled"},
		}
	}
	results, err := l.store.StepOrders(ctx, l.cfg.AttemptGrace, steps)
	if err != nil {
		return err
	}
	wanted := 0
	for i := range results {
		if results[i].Refund != "" {
			wanted++
		}
	}
	s.at = page[len(page)-1]
	if wanted > 0 {
		l.log.Info("refunds of a cancelled campaign wanted", telemetry.Event, "refund_sweep", telemetry.CampaignID, campaign, "refunds", wanted)
	}
	return nil
}
