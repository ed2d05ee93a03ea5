package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// Limits drives operations of kind set-sale-limit. It implements
// planner.Operations. Make it with NewLimits.
type Limits struct {
	Deps
	shards Shards
	pace   *operation.Pace // of reading shards
}

// NewLimits makes the driver. A lowering that waits for units reads the shards once
// in `every`; 0: 1 s.
func NewLimits(d Deps, shards Shards, every time.Duration) *Limits {
	if every <= 0 {
		every = time.Second
	}
	return &Limits{Deps: d, shards: shards, pace: operation.NewPace(d.Clock, every)}
}

// Step takes one limit change as far as it gets now.
func (d *Limits) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	s := d.View.Snapshot()
	op, found := s.Operation(op.ID)
	if !found || op.State.Terminal() {
		return nil
	}
	facts, err := limitFacts(s, op, d.Clock.Now())
	if err != nil {
		return err
	}
	next := StepLimit(facts)
	if next.Do == DoRead {
		if !d.pace.Take(op.ID) {
			return nil
		}
		facts.Cells = Look(ctx, s, d.shards, facts.Book)
		next = StepLimit(facts)
	}
	err = d.carryOut(ctx, leader, op, facts.Book, next)
	if errors.Is(err, core.ErrVersion) { // the book moved: the next tick sees it
		return nil
	}
	return ended(err)
}

func (d *Limits) carryOut(ctx context.Context, leader core.Leader, op core.Operation, book core.Book, next Next) error {
	switch next.Do {
	case DoEnd:
		return d.ends(ctx, leader, op, next.State, next.Detail)
	case DoShrink:
		return d.changeLimit(ctx, leader, op, book, "shrink", "", func(b core.Book) (core.Book, error) {
			b, _, err := b.Shrink()
			return b, err
		})
	case DoGiveUp:
		return d.changeLimit(ctx, leader, op, book, "give-up", next.Detail, core.Book.EndLowering)
	case DoAsk:
		return d.ask(ctx, leader, op, book, next.Asks)
	default:
		return d.waits(ctx, leader, op, next.Step, next.Detail)
	}
}

func limitFacts(s view.Snapshot, op core.Operation, now time.Time) (LimitFacts, error) {
	key := keyOf(op)
	book, known := s.Book(key)
	if !known {
		return LimitFacts{}, fmt.Errorf("%w: %s", core.ErrUnknownSKU, key)
	}
	f := LimitFacts{Target: op.SaleLimit, Book: book}
	if c, _ := s.Campaign(key.Campaign); !c.OnSale(now) {
		f.Over = fmt.Sprintf("campaign %s is %s", key.Campaign, c.ReadState(now))
	}
	for _, done := range op.Steps {
		if done.Name == StepReturns {
			f.Reached = done.Detail
		}
	}
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			switch {
			case r.Key != key || !a.Open():
			case a.Kind == core.KindLimit && r.OperationID == op.ID:
				f.Unrecorded++
			case a.Kind == core.KindGrant || a.Kind == core.KindReturn:
				f.Open = append(f.Open, a)
			}
		}
	}
	return f, nil
}

// changeLimit changes the limit by one verb, in one transaction with the physical
// stock and the operation. When the verb ends the lowering the operation's step is
// finished, with the words that the operation will end with.
func (d *Limits) changeLimit(ctx context.Context, leader core.Leader, op core.Operation, seen core.Book, what, detail string, verb func(core.Book) (core.Book, error)) error {
	m := d.goesOn(leader, op, seen, what)
	m.Also = func(tx *store.Tx) error {
		op, err := open(tx, &leader, op.ID)
		if err != nil {
			return err
		}
		book, _, err := tx.Book(seen.Key)
		if err != nil {
			return err
		}
		after, err := verb(book)
		if err != nil {
			return err
		}
		stock, changed, err := StockOf(tx, after)
		if err != nil {
			return err
		}
		if changed {
			if err := tx.PutStock(stock); err != nil {
				return err
			}
		}
		if after.LimitTarget.IsZero() {
			reached := cmp.Or(detail, fmt.Sprintf("sale_limit is %s", after.SaleLimit))
			return tx.PutOperation(op.Finished(StepReturns, reached, StepRecorded, tx.Now()))
		}
		return nil
	}
	m.Edit = func(book core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		after, err := verb(book)
		if err != nil {
			return core.Book{}, nil, err
		}
		return after, []core.Adjustment{LimitAdjustment(m.RecordID, after, op.Actor, op.Reason, d.Clock.Now().UTC())}, nil
	}
	_, err := d.Store.Move(ctx, m)
	return err
}

// ask proposes a return to each cell asked, all in one record.
func (d *Limits) ask(ctx context.Context, leader core.Leader, op core.Operation, seen core.Book, asks []Ask) error {
	m := d.goesOn(leader, op, seen, "ask")
	m.Also = func(tx *store.Tx) error {
		_, err := open(tx, &leader, op.ID)
		return err
	}
	m.Edit = func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		var out []core.Adjustment
		for _, ask := range asks {
			next, step, err := book.ProposeReturn(cells[ask.Cell], ask.Units)
			if err != nil {
				return core.Book{}, nil, err
			}
			book = next
			out = append(out, core.Adjustment{
				ID: limitReturnID(m.RecordID, ask.Cell), Key: book.Key, Cell: ask.Cell, Kind: core.KindReturn, Units: ask.Units, State: core.StateProposed, Step: step,
				Actor: op.Actor, Reason: op.Reason, CreatedAt: d.Clock.Now().UTC(),
			})
		}
		return book, out, nil
	}
	_, err := d.Store.Move(ctx, m)
	return err
}

// goesOn is the move by which a lowering goes on from one version of the book: its
// id says which, so that a repeat, by whatever leader, finds its record.
func (d *Limits) goesOn(leader core.Leader, op core.Operation, seen core.Book, what string) store.Move {
	return store.Move{
		RecordID: limitID(op.ID, what, seen.Version), Parameters: core.Digest("lowering", op.ID, what), Key: seen.Key, ExpectedVersion: seen.Version,
		Actor: op.Actor, Method: op.Kind, Reason: op.Reason, OperationID: op.ID, Leader: &leader,
	}
}

// StockOf gives the physical stock with the limit of a book that is about to be
// written; changed is false where it holds that limit already.
func StockOf(tx *store.Tx, after core.Book) (core.PhysicalStock, bool, error) {
	stock, _, err := tx.Stock(after.Key.SKU)
	if err != nil {
		return core.PhysicalStock{}, false, err
	}
	return stock.SetLimit(after.Key.Campaign, after.SaleLimit)
}
