package link

import (
	"cmp"
	"slices"
	"time"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Usage is a cell's newest word on one SKU. It is for showing and for proposing
// top-ups; never evidence.
type Usage struct {
	Stock        core.StockFacts
	FenceVersion int64 // of the facts
	// Admitted and Refused are cumulative since the mirror's build.
	Admitted, Refused int64
	// OldestUnsettled is the age of the oldest admission without an outcome.
	OldestUnsettled time.Duration
	Gate            pb.GateState
	At              time.Time // received or confirmed, by the control plane's clock
	// told is the stream over which it came: a later report over the same stream
	// that does not name the SKU says that it still stands.
	told  uint64
	meter supply.Meter // of Admitted + Refused
}

// older tells whether u is older than the one that is known: lower (fence
// version, stock version). Equal ones refresh what is not stock.
func (u Usage) older(known Usage) bool {
	return cmp.Or(cmp.Compare(u.FenceVersion, known.FenceVersion), cmp.Compare(u.Stock.Version, known.Stock.Version)) < 0
}

// report takes a report's usages over, each unless something newer is known. It
// tells whether any was.
func (r *reign) report(s *stream, m *pb.Report, now time.Time) (changed bool) {
	if m.GetFenceVersion() != s.fenceVersion {
		return false // of a version that this process was not welcomed under
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	desk := r.desk(s.cell)
	desk.confirmed, desk.confirmedBy = now, s.id
	known := desk.usages
	for _, row := range m.GetUsages() {
		stock, err := convert.FromStock(row.GetStock())
		if err != nil {
			continue // one bad row must not hide the others
		}
		u := Usage{
			Stock: stock, FenceVersion: m.GetFenceVersion(), Admitted: row.GetAdmitted(), Refused: row.GetRefusedForStock(),
			OldestUnsettled: time.Duration(row.GetOldestUnsettledAgeMs()) * time.Millisecond, Gate: row.GetGate(), At: now, told: s.id,
		}
		was, have := known[stock.Key]
		if have && u.older(was) || !have && len(known) >= maxUsages {
			continue
		}
		known[stock.Key] = u.measured(was, now)
		changed = true
	}
	return changed
}

// measured gives the usage with its rate of demand. A report without the mirror's
// figures (it could not be read: no gate) keeps the counts before: they only grow.
func (u Usage) measured(was Usage, now time.Time) Usage {
	if u.Gate == pb.GateState_GATE_STATE_UNSPECIFIED {
		u.Admitted, u.Refused, u.meter = was.Admitted, was.Refused, was.meter
		return u
	}
	u.meter = was.meter.Note(now, u.Admitted+u.Refused)
	return u
}

// current gives a usage with the time at which the cell last said that it stands.
func (d *cellDesk) current(u Usage) Usage {
	if u.told == d.confirmedBy && d.confirmed.After(u.At) {
		u.At = d.confirmed
	}
	return u
}

// Report gives what the cell last reported of one SKU, as supply asks for it;
// false where nothing came under this leader.
func (h *Hub) Report(cell ids.CellID, key core.BookKey) (supply.Report, bool) {
	u, ok := h.UsageOf(cell, key)
	if !ok {
		return supply.Report{}, false
	}
	return supply.Report{
		Stock: u.Stock, FenceVersion: u.FenceVersion, Admitted: u.Admitted, Refused: u.Refused, At: u.At, Rate: u.meter.Rate(h.Clock.Now()),
	}, true
}

// Usage gives what the cell last reported, in order of campaign and SKU.
func (h *Hub) Usage(cell ids.CellID) []Usage {
	r := h.present()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Usage
	if d := r.cells[cell]; d != nil {
		for _, u := range d.usages {
			out = append(out, d.current(u))
		}
	}
	slices.SortFunc(out, func(a, b Usage) int { return cmp.Compare(a.Stock.Key.String(), b.Stock.Key.String()) })
	return out
}

// Facts implements planner.Cells.
func (h *Hub) Facts(cell ids.CellID) (planner.Shard, bool) {
	reporter, linked := h.Reporter(cell)
	facts := planner.Shard{Cell: cell, FenceVersion: reporter.FenceVersion}
	for _, u := range h.Usage(cell) {
		if u.FenceVersion == reporter.FenceVersion {
			facts.Stocks = append(facts.Stocks, u.Stock)
		}
	}
	return facts, linked && len(facts.Stocks) > 0
}

// UsageOf gives what the cell last reported of one SKU.
func (h *Hub) UsageOf(cell ids.CellID, key core.BookKey) (Usage, bool) {
	r := h.present()
	if r == nil {
		return Usage{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.cells[cell]; d != nil {
		u, ok := d.usages[key]
		return d.current(u), ok
	}
	return Usage{}, false
}

// Reported gives when the cell's last report came and the units that reports of
// fence version from and above say are available or reserved; false where no
// report came under this leader.
func (h *Hub) Reported(cell ids.CellID, from int64) (last time.Time, atRisk int64, ok bool) {
	for _, u := range h.Usage(cell) {
		if u.FenceVersion >= from {
			atRisk += u.Stock.Available.Int64() + u.Stock.Reserved.Int64()
		}
		if u.At.After(last) {
			last = u.At
		}
	}
	return last, atRisk, !last.IsZero()
}
