package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// The rule of a new leader: it grants units of a SKU only when every cell that
// could hold units of it was compared with the books under its term. An etcd that
// was restored from a backup forgot grants that only a silent cell's shard
// remembers; its units are in the reserve again, and granting them would sell
// them twice (ADR 0007).
//
// A cell is compared by its hello, or by a reading under the fencer's role when it
// is silent but its shard answers. All of it is skipped by a leader whose own
// watch ran without a break since a moment at which all shards had been compared.

// couldHold lists the cells that could hold units of a campaign, whatever etcd
// says of them. A campaign that was on sale in what etcd knows has its buckets
// frozen, and a cell without buckets is granted nothing: its own cells and those
// of its books are all. One that is a draft or is being published may have been
// published to other cells in a past that was lost: every cell. A cell that was
// never installed, is retired or was written off holds nothing that counts.
func couldHold(c core.Campaign, books []core.Book, cells []core.Cell, writtenOff func(core.Cell) bool) []ids.CellID {
	frozen := c.State != core.CampaignDraft && c.State != core.CampaignPublishing
	var out []ids.CellID
	for _, cell := range cells {
		id := cell.Spec.ID
		if cell.State == core.CellProvisioned || cell.State == core.CellRetired || writtenOff(cell) {
			continue
		}
		if !frozen || slices.Contains(c.Spec.Cells, id) || slices.ContainsFunc(books, func(b core.Book) bool { _, held := b.Allocation(id); return held }) {
			out = append(out, id)
		}
	}
	return out
}

func writtenOff(s view.Snapshot) func(core.Cell) bool {
	return func(c core.Cell) bool {
		proof, known := s.Proof(c.Spec.ID, c.FenceVersion)
		return c.State == core.CellFenced && known && proof.Evidence == core.EvidenceAttestedLoss
	}
}

// waitsFor lists the cells that grants of a campaign wait for.
func (p *Planner) waitsFor(s view.Snapshot, c core.Campaign) []ids.CellID {
	p.mu.Lock()
	unbroken := p.memory.unbroken
	p.mu.Unlock()
	if unbroken {
		return nil
	}
	var books []core.Book
	if c.Spec.ID != "" {
		books = s.Books(c.Spec.ID)
	}
	return slices.DeleteFunc(couldHold(c, books, s.Cells(), writtenOff(s)), p.known)
}

// anyCampaign could be held by every cell.
var anyCampaign = core.Campaign{State: core.CampaignDraft}

// known tells whether the cell's shard was compared under this leadership.
func (p *Planner) known(cell ids.CellID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory.known[cell]
}

func (p *Planner) compared(cell ids.CellID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.known[cell] = true
}

// Uncompared lists the cells whose shard this leader has not compared; nil where
// it does not lead or need not ask.
func (p *Planner) Uncompared() []ids.CellID {
	if _, leads := p.leader(); !leads {
		return nil
	}
	return p.waitsFor(p.view.Snapshot(), anyCampaign)
}

// unbroken tells whether this process's own watch ran without a break since all
// shards were compared (a leader's word that came over the watch, not in a
// listing, which a backup has too), and what etcd has now is what it saw.
func (p *Planner) unbroken(ctx context.Context, s view.Snapshot) bool {
	if !s.SawCompared() {
		return false
	}
	return p.store.Intact(ctx) == nil
}

// sayCompared writes down that every cell was compared under this leader, once.
func (p *Planner) sayCompared(ctx context.Context, leader core.Leader, s view.Snapshot) {
	p.mu.Lock()
	said := p.memory.saidCompared
	p.mu.Unlock()
	if said || len(p.waitsFor(s, anyCampaign)) > 0 {
		return
	}
	if err := p.store.PutCompared(ctx, leader); err != nil {
		p.note(ctx, err, "all shards are compared, and that was not written down")
		return
	}
	p.mu.Lock()
	p.memory.saidCompared = true
	p.mu.Unlock()
	p.log.InfoContext(ctx, "every shard was compared with the books", telemetry.Event, "shards_compared", "term", leader.Term.Count)
}

// ErrTermAhead: a shard knows a higher term than this leader's, or another leader
// of the same count.
var ErrTermAhead = errors.New("the shard knows another term")

// Witness reads a shard without its processes. recovery.Witness implements it.
type Witness interface {
	// Witness raises the shard's term row to the leader's term, commits, and then
	// reads what the shard knows, in one snapshot. Errors: the shard does not
	// answer, or ErrTermAhead.
	Witness(ctx context.Context, spec core.CellSpec, term core.Term) (Shard, error)
}

const (
	// witnessAfter is how long a cell may take to say hello to a new leader before
	// its shard is read instead; one that may not register is read at once.
	witnessAfter = time.Second
	// witnessEvery is the pause between two readings of one shard.
	witnessEvery = time.Second
	// witnessTime bounds one reading.
	witnessTime = 5 * time.Second
)

// witnessAll reads the shards of cells that did not say hello, several at once.
func (p *Planner) witnessAll(ctx context.Context, leader core.Leader) error {
	s := p.view.Snapshot()
	var readings errgroup.Group
	readings.SetLimit(atOnce)
	for _, id := range p.waitsFor(s, anyCampaign) {
		cell, _ := s.Cell(id)
		if !p.mayWitness(cell) {
			continue
		}
		readings.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, witnessTime)
			defer cancel()
			shard, err := p.witness.Witness(ctx, cell.Spec, leader.Term)
			if err == nil {
				err = p.agree(ctx, shard)
			}
			if errors.Is(err, ErrTermAhead) && p.store.Leads(ctx, leader) == nil {
				p.OnRestored(id, fmt.Sprintf("the shard of cell %s knows a term that etcd never gave out: %v", id, err))
			}
			if err == nil {
				p.compared(id)
				p.Wake()
				return nil
			}
			p.note(ctx, err, "a silent cell's shard was not compared; grants of what it could hold wait", telemetry.CellID, id)
			return nil
		})
	}
	return readings.Wait()
}

// mayWitness paces the readings of one shard.
func (p *Planner) mayWitness(cell core.Cell) bool {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	id := cell.Spec.ID
	if cell.State.MayRegister() && now.Sub(p.memory.began) < witnessAfter || now.Sub(p.memory.witnessed[id]) < witnessEvery {
		return false
	}
	p.memory.witnessed[id] = now
	return true
}

// holds says in words what the grants of a campaign wait for; "": nothing.
func (p *Planner) holds(s view.Snapshot, c core.Campaign) string {
	cells := p.waitsFor(s, c)
	if len(cells) == 0 {
		return ""
	}
	names := make([]string, len(cells))
	for i, id := range cells {
		names[i] = string(id)
	}
	return fmt.Sprintf("%s may hold units of %s, and neither a process nor the shard has answered this leader: start it, or fence it and write it off", few(names), c.Spec.ID)
}
