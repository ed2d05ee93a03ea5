package supply

import (
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
)

// Report is a cell's newest word on one SKU.
type Report struct {
	Stock        core.StockFacts
	FenceVersion int64 // of the facts
	// Admitted and Refused are cumulative since the mirror's build.
	Admitted, Refused int64
	// At is when the cell last said that it still stands, by the control plane's clock.
	At   time.Time
	Rate Rate
}

// Demand is how many units were asked of the cell so far, roughly: what its mirror
// admitted, or what its shard took where the mirror was built anew and counts from
// zero again, and what was refused because nothing was left.
func (r Report) Demand() uint64 {
	taken := r.Stock.Reserved.Int64() + r.Stock.Confirmed.Int64() + r.Stock.Released
	return uint64(max(0, taken, r.Admitted)) + uint64(max(0, r.Refused))
}

// Rate is a demand that was measured: units over a time; the zero value is none.
type Rate struct {
	Units int64
	Over  time.Duration
}

// Known tells whether it was measured.
func (r Rate) Known() bool { return r.Over > 0 }

// Need gives what the rate comes to within a horizon, rounded up, at most
// quantity.Max.
func (r Rate) Need(horizon time.Duration) quantity.Quantity {
	if !r.Known() || r.Units <= 0 || horizon <= 0 {
		return quantity.Quantity{}
	}
	most := quantity.Must(quantity.Max)
	units, err := quantity.New(min(r.Units, quantity.Max))
	if err != nil {
		return most // cannot be: 1 to Max
	}
	need, rest, err := units.MulRatio(uint64(horizon), uint64(r.Over))
	if err == nil && rest > 0 {
		need, err = need.Add(quantity.Must(1))
	}
	if err != nil {
		return most
	}
	return need
}

// Window is the least time that a rate is measured over. A shorter one would take
// a pause between two buyers for the end of demand.
const Window = 10 * time.Second

// Meter measures the rate of a counter that only grows; one that is lower than
// before (a mirror was built anew) begins again. The zero value has measured
// nothing. It holds two marks, so that a rate always covers one to two windows.
type Meter struct {
	older, newer mark
	last         int64
}

type mark struct {
	at    time.Time
	count int64
}

// Note gives the meter after one more reading.
func (m Meter) Note(at time.Time, count int64) Meter {
	now := mark{at, count}
	switch {
	case m.newer.at.IsZero() || count < m.last:
		return Meter{older: now, newer: now, last: count}
	case at.Sub(m.newer.at) >= Window:
		m.older, m.newer = m.newer, now
	}
	m.last = count
	return m
}

// Rate gives the rate up to now; not Known before a whole window was seen. The
// caller knows that the last reading still stands.
func (m Meter) Rate(now time.Time) Rate {
	from := m.older
	if now.Sub(m.newer.at) >= Window {
		from = m.newer
	}
	over := now.Sub(from.at)
	if m.newer.at.IsZero() || over < Window {
		return Rate{}
	}
	return Rate{Units: m.last - from.count, Over: over}
}
