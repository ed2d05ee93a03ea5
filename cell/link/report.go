package link

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// usage is what orders two reports of one SKU, with the mirror's figures.
type usage struct {
	fence, version     int64
	admitted, refused  int64
	oldestAge          int64
	gate               pb.GateState
	number             int64
	adjustment, record string
}

// newer tells whether now is worth a report after what was sent before. Facts of a lower pair are
// never sent again (K57); the mirror's figures alone are, since they order nothing.
func (u usage) newer(before usage) bool {
	switch {
	case u.fence != before.fence:
		return u.fence > before.fence
	case u.version != before.version:
		return u.version > before.version
	default:
		return u != before
	}
}

// stockKey names a stock row.
type stockKey struct{ campaign, sku string }

// reports remembers what was sent on this stream. The zero value has sent nothing.
type reports struct {
	last map[stockKey]usage
	at   time.Time // of the last report
}

// nothingEvery is how often it is told that nothing changed.
const nothingEvery = time.Second

// changed picks the usages that are newer than what was sent, in the shard's order.
func (r *reports) changed(fence int64, all []*pb.UsageReport) []*pb.UsageReport {
	return slices.DeleteFunc(slices.Clone(all), func(u *pb.UsageReport) bool {
		before, sent := r.last[keyOf(u)]
		return sent && !usageOf(fence, u).newer(before)
	})
}

// sent records a report that left.
func (r *reports) sent(fence int64, usages []*pb.UsageReport) {
	if r.last == nil {
		r.last = map[stockKey]usage{}
	}
	for _, u := range usages {
		r.last[keyOf(u)] = usageOf(fence, u)
	}
}

func keyOf(u *pb.UsageReport) stockKey {
	return stockKey{u.GetStock().GetCampaignId(), u.GetStock().GetSkuId()}
}

func usageOf(fence int64, u *pb.UsageReport) usage {
	return usage{
		fence: fence, version: u.GetStock().GetVersion(), admitted: u.GetAdmitted(), refused: u.GetRefusedForStock(),
		oldestAge: u.GetOldestUnsettledAgeMs() / ageStep, gate: u.GetGate(), number: u.GetStock().GetLastNumber(),
		adjustment: u.GetStock().GetLastAdjustmentId(), record: u.GetStock().GetBookRecordId(),
	}
}

// ageStep is the change of an age, in milliseconds, that is worth a report.
const ageStep = 1000

// maxUsages bounds one report.
const maxUsages = 500

// electEvery is the time between two tries for a reporter lock that another process holds: each try is
// a connection of its own.
const electEvery = time.Second

// report tries for the shard's reporter lock and, while this process holds it, reports what changed.
func (s *session) report(ctx context.Context) error {
	tick := s.Clock.NewTicker(s.cfg.Report)
	defer tick.Stop()
	var tried time.Time
	var seen observer
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
		witness := s.observe(ctx, &seen)
		now := s.Clock.Now()
		if !s.reports.Load() && now.Sub(tried) < electEvery {
			continue
		}
		tried = now
		if s.elected(ctx) {
			if err := s.reportUsage(ctx, witness); err != nil {
				return err
			}
		}
	}
}

// elected tries for the lock, or finds that it was lost. A shard that does not answer is not reported
// for.
func (s *session) elected(ctx context.Context) bool {
	within, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	held, err := s.Shard.TryReporterLock(within)
	held = held && err == nil
	if held != s.reports.Swap(held) {
		s.usage = reports{} // a new reporter tells everything once
	}
	return held
}

// reportUsage sends what changed; nothing changed is told too, by a report without usages: the control
// plane takes what it was told before for current only as long as reports come.
func (s *session) reportUsage(ctx context.Context, witness *pb.ShardWitness) error {
	within, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	fence, stocks, err := s.facts(within)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errMoved) {
			s.Logger.DebugContext(ctx, "usage could not be read", telemetry.Event, "link_report_failed", telemetry.Error, err.Error())
		}
		return nil
	}
	changed := s.usage.changed(fence.Version, s.usages(within, stocks))
	now := s.Clock.Now()
	if len(changed) == 0 && witness == nil && now.Sub(s.usage.at) < nothingEvery {
		return nil
	}
	s.usage.at = now
	for _, part := range parts(changed) {
		select {
		case s.send <- &pb.LinkRequest{Kind: &pb.LinkRequest_Report{Report: &pb.Report{FenceVersion: fence.Version, Usages: part, Witness: witness}}}:
			s.usage.sent(fence.Version, part)
			witness = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// parts cuts usages into reports, at least one.
func parts(changed []*pb.UsageReport) [][]*pb.UsageReport {
	if len(changed) == 0 {
		return [][]*pb.UsageReport{nil}
	}
	return slices.Collect(slices.Chunk(changed, maxUsages))
}

// errMoved: a fence came between the two readings; the next ones fit.
var errMoved = errors.New("the fence row changed while the facts were read")

// facts reads stock rows that belong to one fence version: it is read before and after them.
func (l *Link) facts(ctx context.Context) (shard.Fence, []shard.StockFacts, error) {
	before, err := l.Shard.ReadFence(ctx)
	if err != nil {
		return before, nil, err
	}
	stocks, err := l.Shard.Stocks(ctx)
	if err != nil {
		return before, nil, err
	}
	after, err := l.Shard.ReadFence(ctx)
	if err == nil && (after.Version != before.Version || after.State != before.State) {
		err = errMoved
	}
	return after, stocks, err
}

// mirrorPatience bounds one look at the mirrors; without their figures the facts are reported alone.
const mirrorPatience = 200 * time.Millisecond

func (s *session) usages(ctx context.Context, stocks []shard.StockFacts) []*pb.UsageReport {
	ctx, cancel := context.WithTimeout(ctx, mirrorPatience)
	defer cancel()
	rules := s.Rules.Current()
	out := make([]*pb.UsageReport, len(stocks))
	for i, f := range stocks {
		out[i] = &pb.UsageReport{Stock: protoStock(f)}
		c, ok := rules.Campaign(f.Campaign)
		if !ok || c.Direct || ctx.Err() != nil {
			continue
		}
		m, err := s.Mirror.Facts(ctx, scopeOf(f.Campaign, f.SKU, c.PerSKU), f.SKU)
		if err != nil || !m.Present {
			continue
		}
		out[i].Admitted, out[i].RefusedForStock, out[i].OldestUnsettledAgeMs, out[i].Gate = m.Admitted, m.RefusedForStock, m.OldestAgeMS(), m.Gate
	}
	return out
}

// protoStock is a stock row as a message.
func protoStock(f shard.StockFacts) *pb.StockFacts {
	return &pb.StockFacts{
		CampaignId: string(f.Campaign), SkuId: string(f.SKU), Granted: f.Granted, Available: f.Available, Reserved: f.Reserved,
		Confirmed: f.Confirmed, Released: f.Released, Version: f.Version, AdjustmentVersion: f.AdjustmentVersion, LastNumber: f.LastNumber,
		LastAdjustmentId: f.LastAdjustmentID, BookRecordId: f.BookRecordID,
	}
}
