package quota_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// A walk is a random history of one book: grants, returns, limits, fences, reclaims
// and restores, with answers that are lost, repeated or late. After each step I1
// and the second half of I2 hold, and the journal explains the book.

type editOf = func(core.Book, map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error)

// ledger is where a walk writes: the verbs alone, or the real store.
type ledger interface {
	book() core.Book
	cells() map[ids.CellID]core.Cell
	records() map[string]core.Record
	// move is one named change; the same id again changes nothing.
	move(id string, edit editOf) error
	// answered books what a shard decided.
	answered(record, adjustment string, outcome core.Outcome) error
	setCell(core.Cell)
}

// action is one step of a walk.
type action struct {
	What string
	Cell int
	N    int64
	Pick int
	Lost bool // the answer of it is lost: the caller, or the sender, tries again
}

var kinds = []string{"grant", "grant", "return", "return", "limit", "shrink", "give-up", "decide", "decide", "decide", "decide", "sell", "fence", "reclaim", "restore"}

var actions = rapid.Custom(func(t *rapid.T) action {
	return action{
		What: rapid.SampledFrom(kinds).Draw(t, "what"), Cell: rapid.IntRange(1, 3).Draw(t, "cell"), N: rapid.Int64Range(1, 90).Draw(t, "n"),
		Pick: rapid.IntRange(0, 20).Draw(t, "pick"), Lost: rapid.Bool().Draw(t, "lost"),
	}
})

type walk struct {
	ledger ledger
	shards shards
	sealed map[ids.CellID]int64
	made   int
	limit  int64 // at the start
	first  map[ids.CellID]int64
}

func newWalk(l ledger, s shards) *walk {
	w := &walk{ledger: l, shards: s, sealed: map[ids.CellID]int64{}, limit: l.book().SaleLimit.Int64(), first: map[ids.CellID]int64{}}
	for _, a := range l.book().Allocations {
		w.first[a.Cell] = a.Granted.Int64()
	}
	return w
}

// do takes one step and gives a breach, if there is one then.
func (w *walk) do(a action) error {
	id, cell := cellID(a.Cell), w.ledger.cells()[cellID(a.Cell)]
	w.made++
	name := fmt.Sprint("w", w.made)
	var err error
	switch a.What {
	case "grant":
		err = w.twice(a, name, w.numbered(name, id, core.KindGrant, a.N))
	case "return":
		err = w.twice(a, name, w.numbered(name, id, core.KindReturn, a.N))
	case "limit":
		err = w.twice(a, name, changes(name, func(b core.Book) (core.Book, error) { return b.SetLimit(q(20 + 3*a.N)) }))
	case "shrink":
		err = w.twice(a, name, changes(name, func(b core.Book) (core.Book, error) {
			b, moved, err := b.Shrink()
			if err == nil && !moved {
				err = core.ErrReserveShort
			}
			return b, err
		}))
	case "give-up":
		err = w.twice(a, name, changes(name, core.Book.EndLowering))
	case "decide":
		err = w.decide(a)
	case "sell":
		w.shards[id].sell(a.N)
	case "fence":
		if cell.State == core.CellActive {
			cell.State, cell.FenceVersion, cell.ProofID, cell.Reclaimed = core.CellFenced, cell.FenceVersion+1, "proof", false
			w.ledger.setCell(cell)
			s := w.shards[id]
			w.sealed[id], s.fenced = s.available, true
			s.granted, s.available = s.granted-s.available, 0
		}
	case "reclaim":
		if cell.State == core.CellFenced && !cell.Reclaimed {
			err = w.reclaim(cell, name)
		}
	case "restore":
		if cell.State == core.CellFenced && cell.Reclaimed {
			cell.State, cell.FenceVersion = core.CellActive, cell.FenceVersion+1
			w.ledger.setCell(cell)
			s := w.shards[id]
			s.fenced, s.version, s.last = false, cell.FenceVersion, 0
		}
	}
	return errors.Join(err, w.check())
}

// twice makes a move, and again under the same id when its answer was lost. What the
// book refuses is no breach.
func (w *walk) twice(a action, id string, edit editOf) error {
	before := w.ledger.book()
	err := w.ledger.move(id, edit)
	if err != nil {
		if errors.Is(err, core.ErrBroken) {
			return err
		}
		if after := w.ledger.book(); after.Version != before.Version {
			return fmt.Errorf("a refused move changed the book: %w", err)
		}
		return nil
	}
	if !a.Lost {
		return nil
	}
	once := w.ledger.book()
	if err := w.ledger.move(id, edit); err != nil {
		return fmt.Errorf("the repeat of %s: %w", id, err)
	}
	if again := w.ledger.book(); again.Version != once.Version {
		return fmt.Errorf("the repeat of %s moved the book from version %d to %d", id, once.Version, again.Version)
	}
	return nil
}

func (w *walk) numbered(id string, cell ids.CellID, kind core.AdjustmentKind, n int64) editOf {
	return func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		verb, state := core.Book.Grant, core.StateBooked
		if kind == core.KindReturn {
			verb, state = core.Book.ProposeReturn, core.StateProposed
		}
		b, step, err := verb(b, cells[cell], q(n))
		return b, []core.Adjustment{{ID: id, Key: key, Cell: cell, Kind: kind, Units: q(n), State: state, Step: step}}, err
	}
}

func changes(id string, verb func(core.Book) (core.Book, error)) editOf {
	return func(b core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		b, err := verb(b)
		return b, []core.Adjustment{{ID: id, Key: key, Kind: core.KindLimit, Units: b.SaleLimit, State: core.StateDone, Outcome: core.OutcomeApplied}}, err
	}
}

// decide brings one open or settled adjustment to its shard, in any order, and books
// the answer unless it is lost; sometimes twice.
func (w *walk) decide(a action) error {
	var all []core.Adjustment
	records := w.ledger.records()
	of := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		for _, adjustment := range records[id].Adjustments {
			if adjustment.Number > 0 && w.shards[adjustment.Cell] != nil {
				all, of[adjustment.ID] = append(all, adjustment), id
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	one := all[a.Pick%len(all)]
	said := w.shards[one.Cell].decide(one)
	if said == 0 || a.Lost || one.Outcome == core.OutcomeVoided {
		return nil
	}
	return errors.Join(w.ledger.answered(of[one.ID], one.ID, said), w.ledger.answered(of[one.ID], one.ID, said))
}

// reclaim is what the proof of a fence brings: every open adjustment of the cell ends
// as its shard says, or void; then the sealed units go to the reserve.
func (w *walk) reclaim(cell core.Cell, name string) error {
	id := cell.Spec.ID
	for record, r := range w.ledger.records() {
		for _, a := range r.Adjustments {
			if a.Cell != id || !a.Open() {
				continue
			}
			said, known := w.shards[id].decided[a.ID]
			if !known {
				said = core.OutcomeVoided
			}
			if err := w.ledger.answered(record, a.ID, said); err != nil {
				return err
			}
		}
	}
	sealed := w.sealed[id]
	err := w.ledger.move(name, func(b core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		b, err := b.SealBack(id, q(sealed))
		return b, []core.Adjustment{{ID: name, Key: key, Cell: id, Kind: core.KindSeal, Units: q(sealed), State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: cell.FenceVersion}}}, err
	})
	if err != nil {
		return err
	}
	cell.Reclaimed = true
	w.ledger.setCell(cell)
	b := w.ledger.book()
	if a, _ := b.Allocation(id); a.Granted.Int64() != w.shards[id].granted {
		return fmt.Errorf("after the reclaim of %s the book allocates %s, its shard has sold %d", id, a.Granted, w.shards[id].granted)
	}
	return nil
}

// check is I1, I2 and the journal's account of the book.
func (w *walk) check() error {
	b := w.ledger.book()
	errs := []error{b.Check()}
	for id, s := range w.shards {
		a, _ := b.Allocation(id)
		if s.granted > a.Granted.Int64() {
			errs = append(errs, fmt.Errorf("I2: the shard of %s was granted %d, the book allocates %s", id, s.granted, a.Granted))
		}
		errs = append(errs, s.check())
	}
	return errors.Join(append(errs, w.replay(b))...)
}

// replay rebuilds limit and allocations from the journal alone.
func (w *walk) replay(b core.Book) error {
	limit, at := w.limit, int64(0)
	granted := maps.Clone(w.first)
	for _, r := range w.ledger.records() {
		for _, a := range r.Adjustments {
			n := a.Units.Int64()
			switch {
			case a.Kind == core.KindLimit && r.BookVersion > at:
				limit, at = n, r.BookVersion
			case a.Kind == core.KindGrant && a.State != core.StateVoided:
				granted[a.Cell] += n
			case a.Kind == core.KindReturn && a.Outcome == core.OutcomeApplied, a.Kind == core.KindSeal:
				granted[a.Cell] -= n
			}
		}
	}
	for _, a := range b.Allocations {
		if granted[a.Cell] != a.Granted.Int64() {
			return fmt.Errorf("the journal gives cell %s %d units, the book %s", a.Cell, granted[a.Cell], a.Granted)
		}
	}
	if limit != b.SaleLimit.Int64() {
		return fmt.Errorf("the journal gives a limit of %d, the book %s", limit, b.SaleLimit)
	}
	return nil
}

// verbs is the ledger of the verbs alone.
type verbs struct {
	b       core.Book
	c       map[ids.CellID]core.Cell
	journal map[string]core.Record
}

func newVerbs(t *rapid.T) *verbs {
	v := &verbs{c: map[ids.CellID]core.Cell{}, journal: map[string]core.Record{}}
	plan := allocator.Plan{Limit: q(100), Reserve: q(10)}
	for i := 1; i <= 3; i++ {
		v.c[cellID(i)] = core.Cell{Spec: core.CellSpec{ID: cellID(i)}, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a"}
		plan.Grants = append(plan.Grants, allocator.Grant{Cell: string(cellID(i)), Units: q(30)})
	}
	b, _, err := core.NewBook(key, plan, v.c)
	if err != nil {
		t.Fatal(err)
	}
	v.b = b.Stamp("publish")
	return v
}

func (v *verbs) book() core.Book                 { return v.b }
func (v *verbs) cells() map[ids.CellID]core.Cell { return v.c }
func (v *verbs) records() map[string]core.Record { return v.journal }
func (v *verbs) setCell(c core.Cell)             { c.Version++; v.c[c.Spec.ID] = c }

func (v *verbs) move(id string, edit editOf) error {
	if _, done := v.journal[id]; done {
		return nil
	}
	b, adjustments, err := edit(v.b, v.c)
	if err != nil {
		return err
	}
	v.b = b.Stamp(id)
	v.journal[id] = core.Record{ID: id, Key: key, Adjustments: adjustments, BookVersion: v.b.Version}
	return v.journal[id].Check()
}

func (v *verbs) answered(record, id string, outcome core.Outcome) error {
	r := v.journal[record]
	at := r.Find(id)
	after, effect, err := r.Adjustments[at].Settle(outcome)
	if err != nil {
		return err
	}
	if v.b, err = v.b.Apply(after, effect); err != nil {
		return err
	}
	r.Adjustments[at] = after
	if effect != core.EffectNone {
		v.b = v.b.Stamp(record)
	}
	return nil
}

func threeShards() shards {
	return shards{"cell-1": newShard(30), "cell-2": newShard(30), "cell-3": newShard(30)}
}

// Whatever happens in whatever order, I1 and I2 hold after each step and the journal replays to the book.
func TestWalkOfTheVerbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(newVerbs(t), threeShards())
		for i, a := range rapid.SliceOfN(actions, 1, 80).Draw(t, "actions") {
			if err := w.do(a); err != nil {
				t.Fatalf("after step %d, %+v: %v", i, a, err)
			}
		}
	})
}
