package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of single steps; a step that takes longer ends the demo with its name.
const (
	publishWithin = time.Minute
	soldWithin    = 2 * time.Minute
	suspectWithin = 30 * time.Second
	fenceWithin   = time.Minute
	resellWithin  = 15 * time.Second
	restoreWithin = time.Minute
	drainWithin   = reservationTTL + time.Minute
	pollEvery     = 100 * time.Millisecond
)

// publish stores and publishes the campaign. On a platform that ran before, names of its own keep it
// apart from an earlier demo.
func (t *story) publish(ctx context.Context) error {
	cp, err := t.as(target.CampaignManager)
	if err != nil {
		return err
	}
	campaign, sku := campaignName, skuName
	if t.Target != nil {
		mark := fmt.Sprintf("-%x", t.Clock.Now().Unix())
		campaign, sku = campaign+mark, sku+mark
	}
	e, err := t.stage.Endpoints()
	if err != nil {
		return err
	}
	var names []string
	for _, c := range e.Cells {
		names = append(names, c.CellID)
		t.cells = append(t.cells, ids.CellID(c.CellID))
	}
	if len(t.cells) < 2 {
		return fmt.Errorf("%w: the platform has %d cells: the last live cell cannot be fenced", ErrUsage, len(t.cells))
	}
	t.victim = victimOf(t.cells)
	t.key = core.BookKey{Campaign: ids.CampaignID(campaign), SKU: ids.SKUID(sku)}
	t.report.Campaign, t.report.SKU, t.report.Fence.Cell = campaign, sku, string(t.victim)

	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	text := campaignYAML(campaign, sku, t.Settings, names, t.Clock.Now())
	if _, err := cp.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: text, OperationId: ids.NewOperationID()}); err != nil {
		return fmt.Errorf("create campaign: %w", err)
	}
	out, err := cp.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: campaign, OperationId: ids.NewOperationID()})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if err := t.await(ctx, out.GetOperation()); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	books, err := cp.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: campaign})
	if err != nil {
		return fmt.Errorf("read the books: %w", err)
	}
	for _, b := range books.GetBooks() {
		t.chapter("published: %d units of %s, reserve %d, %d cells of %d", b.GetSaleLimit(), b.GetSkuId(), b.GetReserve(), len(b.GetAllocations()), b.GetAllocations()[0].GetGranted())
	}
	return nil
}

// await waits for an operation, asking again when the control plane had to let go.
func (t *story) await(ctx context.Context, op *pb.Operation) error {
	cp, err := t.as(target.SRE)
	if err != nil {
		return err
	}
	for {
		out, err := cp.Operations.Wait(ctx, &pb.OperationServiceWaitRequest{OperationId: op.GetOperationId()})
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, rpcstatus.ErrUnavailable):
			if err := t.Clock.Sleep(ctx, pollEvery); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("operation %s: %w", op.GetOperationId(), err)
		case out.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_DONE:
			return fmt.Errorf("operation %s ended %s at %s: %s", op.GetOperationId(), out.GetOperation().GetState(), out.GetOperation().GetStep(), out.GetOperation().GetDetail())
		default:
			return nil
		}
	}
}

// accidents are what happens during the sale.
func (t *story) accidents(ctx context.Context, w *witness) error {
	demand := int64(t.demand())
	if _, ok := w.await(ctx, soldWithin, func(l look) bool { return l.sold(every) >= demand*15/100 }); !ok {
		return t.stuck(ctx, "15 % of the units sold", w)
	}
	if err := t.topUp(ctx, w); err != nil {
		return err
	}
	if _, ok := w.await(ctx, soldWithin, func(l look) bool { return l.sold(every) >= demand*40/100 }); !ok {
		return t.stuck(ctx, "40 % of the units sold", w)
	}
	if err := t.kill(ctx, w); err != nil {
		return err
	}
	if err := t.fence(ctx, w); err != nil {
		return err
	}
	return t.restore(ctx, w)
}

func (t *story) stuck(ctx context.Context, what string, w *witness) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l := w.newest()
	return fmt.Errorf("waited in vain for %s: %d sold of %d granted, reserve %d", what, l.sold(every), l.granted(every), l.reserve)
}

// topUp gives a quarter of the reserve to the first cell that lives, by hand.
func (t *story) topUp(ctx context.Context, w *witness) error {
	cp, err := t.as(target.CampaignManager)
	if err != nil {
		return err
	}
	before := w.newest()
	units, to := max(1, before.reserve/4), t.cells[0]
	if to == t.victim {
		to = t.cells[1]
	}
	from := t.Clock.Now()
	_, err = cp.Quota.TopUp(ctx, &pb.TopUpRequest{
		AdjustmentId: ids.NewOperationID(), CampaignId: string(t.key.Campaign), SkuId: string(t.key.SKU), CellId: string(to),
		Units: int32(units), Reason: "demo: one top-up by hand",
	})
	if err != nil {
		return fmt.Errorf("top-up: %w", err)
	}
	l, ok := w.await(ctx, fenceWithin, func(l look) bool { return l.shards[to].Granted >= before.shards[to].Granted+units })
	if !ok {
		return t.stuck(ctx, fmt.Sprintf("%d units at %s", units, to), w)
	}
	t.chapter("topped up %s by %d units from the reserve; its shard holds them after %s", to, units, l.at.Sub(from).Round(time.Millisecond))
	return nil
}

// kill ends every cellquotad process of the victim; its PostgreSQL lives.
func (t *story) kill(ctx context.Context, w *witness) error {
	t.peaks.look(ctx, t.stage.super) // before they are gone
	if _, err := t.stage.super.Kill(ctx, string(t.victim), platform.KILL); err != nil {
		return fmt.Errorf("kill %s: %w", t.victim, err)
	}
	killed := t.Clock.Now()
	dead, ok := w.await(ctx, suspectWithin, func(l look) bool { return !l.at.Before(killed) })
	if !ok {
		return t.stuck(ctx, "a look after the kill", w)
	}
	s := dead.shards[t.victim]
	t.report.Fence.ConfirmedAtDeath = s.Confirmed
	t.chapter("kill -9 of %s: its shard holds %d available, %d reserved, %d confirmed", t.victim, s.Available, s.Reserved, s.Confirmed)
	if err := t.awaitState(ctx, pb.CellState_CELL_STATE_SUSPECT, suspectWithin); err != nil {
		return err
	}
	t.report.Fence.KillToSuspectMS = millis(t.Clock.Now().Sub(killed))
	t.chapter("%s is SUSPECT", t.victim)
	return nil
}

// awaitState polls the victim's state.
func (t *story) awaitState(ctx context.Context, want pb.CellState, within time.Duration) error {
	cp, err := t.as(target.SRE)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	last := errors.New("nobody was asked")
	for {
		out, err := cp.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: string(t.victim)})
		switch {
		case err != nil && ctx.Err() == nil:
			last = err
		case err == nil && out.GetCell().GetState() == want:
			return nil
		case err == nil:
			last = fmt.Errorf("it is %s", out.GetCell().GetState())
		}
		if t.Clock.Sleep(ctx, pollEvery) != nil {
			return fmt.Errorf("waited in vain for %s to be %s: %w", t.victim, want, last)
		}
	}
}

// fence takes the right to write from the dead cell, and its unsold units with proof.
func (t *story) fence(ctx context.Context, w *witness) error {
	cp, err := t.as(target.SRE)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fenceWithin)
	defer cancel()
	others := but(t.victim)
	before := w.newest()
	ordered := t.Clock.Now()
	out, err := cp.Fences.FenceCell(ctx, &pb.FenceCellRequest{
		CellId: string(t.victim), OperationId: ids.NewOperationID(), Reclaim: true, TopUp: true, Reason: "demo: its processes are dead",
	})
	if err != nil {
		return fmt.Errorf("fence %s: %w", t.victim, err)
	}
	if err := t.await(ctx, out.GetOperation()); err != nil {
		return fmt.Errorf("fence %s: %w", t.victim, err)
	}
	f := &t.report.Fence
	f.CommandToDoneMS = millis(t.Clock.Now().Sub(ordered))
	f.Reclaimed = before.shards[t.victim].Available
	arrived := func(l look) bool { return l.granted(others) >= before.granted(others)+f.Reclaimed }
	if _, ok := w.await(ctx, fenceWithin, arrived); !ok {
		return t.stuck(ctx, fmt.Sprintf("%d units of %s at the others", f.Reclaimed, t.victim), w)
	}
	if l, ok := w.firstSince(ordered, arrived); ok {
		f.CommandToOnSaleMS = millis(l.at.Sub(ordered))
	}
	t.chapter("fenced, reclaimed and topped up: %d units of %s are on sale elsewhere after %s", f.Reclaimed, t.victim, span(f.CommandToOnSaleMS))
	sold := func(l look) bool { return l.sold(others) >= before.sold(others)+f.Reclaimed*9/10 }
	if _, ok := w.await(ctx, resellWithin, sold); ok {
		l, _ := w.firstSince(ordered, sold)
		f.CommandToSoldMS = millis(l.at.Sub(ordered))
		t.chapter("nine in ten of them are sold by others after %s", span(f.CommandToSoldMS))
	}
	return nil
}

// restore brings the cell back: it settles first, then sells again.
func (t *story) restore(ctx context.Context, w *witness) error {
	cp, err := t.as(target.SRE)
	if err != nil {
		return err
	}
	if _, err := t.stage.super.Start(ctx, string(t.victim)); err != nil {
		return fmt.Errorf("start %s: %w", t.victim, err)
	}
	opCtx, cancel := context.WithTimeout(ctx, restoreWithin)
	defer cancel()
	out, err := cp.Fences.RestoreCell(opCtx, &pb.RestoreCellRequest{CellId: string(t.victim), OperationId: ids.NewOperationID(), Reason: "demo: it is back"})
	if err != nil {
		return fmt.Errorf("restore %s: %w", t.victim, err)
	}
	if err := t.await(opCtx, out.GetOperation()); err != nil {
		return fmt.Errorf("restore %s: %w", t.victim, err)
	}
	if err := t.awaitState(ctx, pb.CellState_CELL_STATE_ACTIVE, restoreWithin); err != nil {
		return err
	}
	t.chapter("%s is restored and ACTIVE: its customers can pay", t.victim)
	back := func(l look) bool { return l.shards[t.victim].Confirmed > t.report.Fence.ConfirmedAtDeath }
	if l, ok := w.await(ctx, restoreWithin, back); ok {
		t.chapter("the first of them has paid, %d confirmed at %s", l.shards[t.victim].Confirmed, t.victim)
	}
	return nil
}

// finish closes the sale and waits until nobody holds a unit without having paid.
func (t *story) finish(ctx context.Context, w *witness) error {
	cp, err := t.as(target.CampaignManager)
	if err != nil {
		return err
	}
	if _, err := cp.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: string(t.key.Campaign), OperationId: ids.NewOperationID(), Reason: "demo: the end"}); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	t.chapter("closed")
	drained := func(l look) bool {
		for _, s := range l.shards {
			if s.Reserved > 0 {
				return false
			}
		}
		return len(l.shards) == len(t.cells)
	}
	if _, ok := w.await(ctx, drainWithin, drained); !ok {
		return t.stuck(ctx, "every reservation to be paid or released", w)
	}
	t.chapter("drained: nothing is reserved any more")
	t.peaks.look(ctx, t.stage.super)
	t.report.Memory = t.peaks.sorted()
	return nil
}
