package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// errRecovered ends a leadership that only waited for recovery: the next one
// begins with new memory.
var errRecovered = errors.New("etcd's books were confirmed; a new leadership begins")

// errLowTerm ends a leadership whose term a shard has outgrown.
var errLowTerm = errors.New("the term has to be higher; a new leadership begins")

// intact ends the leadership when etcd is known to have lost its past: by the
// record that stands, or by what this process saw, which it writes down first.
func (p *Planner) intact(ctx context.Context, leader core.Leader, s view.Snapshot) error {
	if r, stands := s.Restored(); stands {
		return r.Refuses()
	}
	p.mu.Lock()
	loss := p.memory.loss
	p.mu.Unlock()
	if why := p.store.Lost(); loss.Why == "" {
		loss.Why = why
	}
	if loss.Why == "" {
		return nil
	}
	loss.FoundBy = leader.Address
	if err := p.store.MarkRestored(ctx, loss); err != nil {
		p.note(ctx, err, "etcd lost its past, and that was not written down")
		return nil // tried again; nothing is granted meanwhile
	}
	return loss.Refuses()
}

// waitForRecovery leads while etcd is RESTORED: it drives recovery and nothing
// else. It ends when the record is gone, or when recovery has found that a shard
// knows a higher term than this leader's.
func (p *Planner) waitForRecovery(ctx context.Context, leader core.Leader) error {
	p.log.WarnContext(ctx, "etcd lost its past: leading for recovery only", telemetry.Event, "recovery_awaited", "term", leader.Term.Count)
	crew := newCrew(p.wake)
	defer crew.steps.Wait()
	return p.every(ctx, p.wake, func(ctx context.Context) error {
		s := p.view.Snapshot()
		if _, stands := s.Restored(); !stands {
			return errRecovered
		}
		if s.Term().Count > leader.Term.Count {
			return fmt.Errorf("%w: %d is below %d", errLowTerm, leader.Term.Count, s.Term().Count)
		}
		p.operate(ctx, leader, crew)
		return nil
	})
}

// drives tells whether an operation is carried on now: only recovery while etcd
// is RESTORED.
func drives(s view.Snapshot, op core.Operation) bool {
	_, stands := s.Restored()
	return !stands || op.Kind == core.OperationRecover
}

// OnRestored stops all grants of this leadership: a hello or a shard showed what
// etcd never gave out. The loop writes it down and steps down.
func (p *Planner) OnRestored(cell ids.CellID, why string) {
	p.mu.Lock()
	first := p.memory.loss.Why == ""
	if first {
		p.memory.loss = core.Restored{Why: why, Cell: cell}
	}
	p.mu.Unlock()
	if first {
		p.log.Error("etcd lost its past: nothing is granted", telemetry.Event, "store_restored", telemetry.CellID, cell, "detail", why)
	}
	p.Wake()
}

// Restored gives why nothing is granted any more, or "".
func (p *Planner) Restored() string {
	if r, stands := p.view.Snapshot().Restored(); stands {
		return r.String()
	}
	p.mu.Lock()
	why := p.memory.loss.Why
	p.mu.Unlock()
	if why == "" {
		why = p.store.Lost()
	}
	return why
}

// agree compares what a shard knows with the books: with the view, and when that
// is behind, with what etcd has now. core.ErrRestored is remembered.
func (p *Planner) agree(ctx context.Context, facts Shard) error {
	if Compare(facts, p.view.Snapshot()) == nil {
		return nil
	}
	head, err := p.store.Head(ctx) // the view may only be late: ask etcd
	if err != nil {
		return err
	}
	s, err := p.view.WaitFor(ctx, head)
	if err != nil {
		return err
	}
	err = Compare(facts, s)
	if errors.Is(err, core.ErrRestored) {
		p.OnRestored(facts.Cell, err.Error())
	}
	return err
}

// OnReport notes that a cell reported; the loop compares what it said.
func (p *Planner) OnReport(cell ids.CellID) {
	p.mu.Lock()
	p.memory.reported[cell] = true
	p.mu.Unlock()
	p.Wake()
}

// compareReports holds the newest reports against the books: a report shows a
// lost past within its interval, where a hello shows it at the next link only.
func (p *Planner) compareReports(ctx context.Context) {
	p.mu.Lock()
	reported := p.memory.reported
	p.memory.reported = map[ids.CellID]bool{}
	p.mu.Unlock()
	for cell := range reported {
		facts, linked := p.cells.Facts(cell)
		if !linked {
			continue
		}
		if err := p.agree(ctx, facts); err != nil && !errors.Is(err, ErrOlderFacts) {
			p.note(ctx, err, "a report was not compared", telemetry.CellID, cell)
		}
	}
}
