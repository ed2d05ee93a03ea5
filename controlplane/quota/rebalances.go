package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// Rebalances drives operations of kind rebalance. It implements planner.Operations.
//
// A plan goes on in rounds: one transaction per SKU and tick, which writes every
// adjustment that can be written now (returns at first, grants as givers answer).
// A round's record and its adjustments have ids derived from the operation, the SKU
// and the count of rounds, or the move's place: the next leader finds them.
type Rebalances struct{ Deps }

// errNothing: no move of a round can go on now. It leaves the round unwritten.
var errNothing = errors.New("no move can go on now")

// Step takes one rebalance as far as it gets now.
func (d Rebalances) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	s := d.View.Snapshot()
	moves := moveFacts(s, op)
	refused, wrote := map[int]string{}, false
	for _, sku := range skusOf(moves) {
		ready := slices.DeleteFunc(slices.Clone(moves), func(m MoveFacts) bool {
			progress, _ := m.Standing()
			return m.SKU != sku || progress != MoveReady
		})
		if len(ready) == 0 {
			continue
		}
		err := d.round(ctx, leader, s, op, sku, ready, refused)
		switch {
		case err == nil:
			wrote = true
		case !errors.Is(err, errNothing):
			return ended(err)
		}
	}
	if wrote {
		return nil // the next tick sees what was written
	}
	next := StepRebalance(moves, refused)
	if next.Do == DoEnd {
		return ended(d.ends(ctx, leader, op, next.State, next.Detail))
	}
	return ended(d.waits(ctx, leader, op, next.Step, next.Detail))
}

// round writes the next adjustments of one SKU's moves, and says of the others in
// refused why not. errNothing where that is all of them.
func (d Rebalances) round(ctx context.Context, leader core.Leader, s view.Snapshot, op core.Operation, sku ids.SKUID, ready []MoveFacts, refused map[int]string) error {
	key := core.BookKey{Campaign: ids.CampaignID(op.Subject), SKU: sku}
	id := nextRound(s, op, sku)
	var book core.Book
	var written []core.Adjustment
	_, err := d.Store.Move(ctx, store.Move{
		RecordID: id, Parameters: core.Digest("rebalance", id), Key: key, Actor: op.Actor, Method: op.Kind, Reason: op.Reason, OperationID: op.ID, Leader: &leader,
		Also: func(tx *store.Tx) error {
			op, err := open(tx, &leader, op.ID)
			if err != nil {
				return err
			}
			r, err := d.begin(tx, key)
			if err != nil {
				return err
			}
			written = nil
			for _, m := range ready {
				delete(refused, m.At)
				step, err := r.Add(m)
				if err != nil {
					refused[m.At] = err.Error()
					continue
				}
				written = append(written, d.adjustment(op, key, m, step))
			}
			book = r.Book
			if len(written) == 0 {
				return errNothing
			}
			return tx.PutOperation(op.Finished(StepMoves, "the first moves were begun", StepMoves, tx.Now()))
		},
		Edit: func(core.Book, map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			return book, written, nil
		},
	})
	return err
}

// begin reads what decides on a round, in its transaction.
func (d Rebalances) begin(tx *store.Tx, key core.BookKey) (Round, error) {
	s := d.View.Snapshot()
	book, known, err := tx.Book(key)
	if err != nil {
		return Round{}, err
	}
	r := Round{Book: book, Read: s.CellState}
	if r.Cells, err = tx.Cells(); err != nil {
		return Round{}, err
	}
	campaign, found, err := tx.Campaign(key.Campaign)
	if err != nil {
		return Round{}, err
	}
	route, _, err := tx.Route(key.Campaign)
	r.Owns = route.Owns
	switch {
	case !known:
		r.Over = fmt.Errorf("%w: %s", core.ErrUnknownSKU, key)
	case !found || !campaign.OnSale(tx.Now()):
		r.Over = campaign.Refuses(tx.Now())
	}
	return r, err
}

func (d Rebalances) adjustment(op core.Operation, key core.BookKey, m MoveFacts, step core.Step) core.Adjustment {
	a := core.Adjustment{
		ID: moveGrantID(op, m.At), Key: key, Cell: m.To, Kind: core.KindGrant, Units: m.Units, State: core.StateBooked, Step: step,
		Actor: op.Actor, Reason: op.Reason, CreatedAt: d.Clock.Now().UTC(),
	}
	if m.asks() {
		a.ID, a.Cell, a.Kind, a.State = moveReturnID(op, m.At), m.From, core.KindReturn, core.StateProposed
	}
	return a
}

// moveFacts looks every move up in the journal.
func moveFacts(s view.Snapshot, op core.Operation) []MoveFacts {
	out := make([]MoveFacts, 0, len(op.Moves))
	for i, m := range op.Moves {
		f := MoveFacts{RebalanceMove: m, At: i}
		f.Return, f.Asked = moveAdjustment(s, moveReturnID(op, i))
		f.Grant, f.Granted = moveAdjustment(s, moveGrantID(op, i))
		out = append(out, f)
	}
	return out
}

func moveAdjustment(s view.Snapshot, id string) (core.Adjustment, bool) {
	record, found := s.RecordOf(id)
	if at := record.Find(id); found && at >= 0 {
		return record.Adjustments[at], true
	}
	return core.Adjustment{}, false
}

// nextRound names the first round of a SKU that the journal does not show.
func nextRound(s view.Snapshot, op core.Operation, sku ids.SKUID) string {
	for n := 0; ; n++ {
		id := roundID(op, sku, n)
		if _, written := s.Record(id); !written {
			return id
		}
	}
}

// skusOf lists the SKUs of moves in the order in which they come.
func skusOf(moves []MoveFacts) []ids.SKUID {
	var out []ids.SKUID
	for _, m := range moves {
		if !slices.Contains(out, m.SKU) {
			out = append(out, m.SKU)
		}
	}
	return out
}
