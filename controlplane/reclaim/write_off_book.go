package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// writeOff marks the cell's allocation of one SKU: one transaction on the book, the
// journal records of the cell that were open, and a record of its own, whose id is
// the write-off's. Once that record exists the SKU is done.
func (d *Driver) writeOff(ctx context.Context, w *work, key core.BookKey) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	open, closed := journal(snapshot, key, w.cell.Spec.ID)
	for len(open) > maxSettled { // what is more is ended beforehand, each by itself; no unit moves
		ended, err := d.endOne(ctx, w, open[0])
		if err != nil {
			return err
		}
		open, closed = open[1:], append(closed, ended)
	}
	var made core.Record
	revision, err := d.store.Update(ctx, "write off "+key.String(), func(tx *store.Tx) (err error) {
		made, err = w.tryWriteOff(tx, key, open, closed)
		return err
	})
	if err != nil {
		return err
	}
	d.store.Count(made.Adjustments)
	d.log.InfoContext(ctx, "written off", w.fields("sku_written_off", telemetry.CampaignID, key.Campaign, telemetry.SKUID, key.SKU, "what", made.Parameters)...)
	_, err = d.view.WaitFor(ctx, revision) // or the SKU would be listed again
	return err
}

// endOne ends what one record has open of the cell.
func (d *Driver) endOne(ctx context.Context, w *work, r core.Record) (core.Record, error) {
	for _, a := range r.Adjustments {
		if a.Cell != w.cell.Spec.ID || !a.Open() {
			continue
		}
		if _, err := d.store.Settle(ctx, w.leader, r.ID, a.ID, endOf(a)); err != nil {
			return core.Record{}, err
		}
	}
	return d.store.Record(ctx, r.ID)
}

// endOf is how an open adjustment of a lost shard ends: the units of a grant are
// among the written-off, those of a return stay there.
func endOf(a core.Adjustment) core.Outcome {
	if a.State == core.StateBooked {
		return core.OutcomeApplied
	}
	return core.OutcomeVoided
}

func (w *work) tryWriteOff(tx *store.Tx, key core.BookKey, open, closed []core.Record) (core.Record, error) {
	if _, err := w.mine(tx); err != nil {
		return core.Record{}, err
	}
	cell, err := w.owned(tx)
	if err != nil {
		return core.Record{}, err
	}
	id := writeOffID(cell, key)
	if record, done, err := tx.Record(id); err != nil || done {
		return record, err
	}
	book, known, err := tx.Book(key)
	if err != nil || !known {
		return core.Record{}, orBroken(err, "cell %s: %s has no book", cell.Spec.ID, key)
	}
	fresh := make([]core.Record, len(open))
	for i, r := range open {
		if fresh[i], _, err = tx.Record(r.ID); err != nil {
			return core.Record{}, err
		}
	}
	plan, err := fencing.PlanWriteOff(bookOf(cell.Spec.ID, book, append(slices.Clone(closed), fresh...), 0), w.reclaim.Version, w.attested)
	if err != nil {
		return core.Record{}, err
	}
	return w.mark(tx, cell, book, plan, fresh, id)
}

// mark puts the marked book, the ended records and the record of the write-off.
func (w *work) mark(tx *store.Tx, cell core.Cell, book core.Book, plan fencing.ReclaimPlan, records []core.Record, id string) (core.Record, error) {
	units, err := quantityOf(plan.Before)
	if err != nil {
		return core.Record{}, err
	}
	changed := map[int]bool{}
	for _, m := range plan.Moves {
		if m.Kind == fencing.MoveWriteOff {
			continue
		}
		at, i := find(records, m.AdjustmentID)
		if at < 0 {
			return core.Record{}, fmt.Errorf("%w: adjustment %s is to be ended and was not read", core.ErrBroken, m.AdjustmentID)
		}
		records[at].Adjustments = slices.Clone(records[at].Adjustments)
		a := &records[at].Adjustments[i]
		ended, effect, err := a.Settle(endOf(*a))
		if err != nil || effect != core.EffectNone {
			return core.Record{}, orBroken(err, "ending %s of a lost shard moves units", m.AdjustmentID)
		}
		ended.Evidence = core.EvidenceAttestedLoss
		*a, changed[at] = ended, true
	}
	if book, err = book.WriteOff(cell.Spec.ID); err != nil {
		return core.Record{}, err
	}
	book = book.Stamp(id)
	record := core.Record{
		ID: id, Key: book.Key, Actor: w.op.Actor, Reason: w.op.Reason, OperationID: w.op.ID, At: tx.Now(), BookVersion: book.Version,
		Parameters: fmt.Sprintf("written_off=%s", units),
		Adjustments: []core.Adjustment{{
			ID: id, Key: book.Key, Cell: cell.Spec.ID, Kind: core.KindWriteOff, Units: units, State: core.StateDone, Outcome: core.OutcomeApplied,
			Step: core.Step{FenceVersion: plan.Version.Int64()}, Actor: w.op.Actor, Reason: w.op.Reason, CreatedAt: tx.Now(), Evidence: core.EvidenceAttestedLoss,
		}},
	}
	errs := []error{tx.PutBook(book), tx.PutRecord(record), tx.Audit(core.Audit{
		Actor: w.op.Actor, Method: "write off", OperationID: w.op.ID, Subject: "book " + book.Key.String(), Reason: record.Parameters,
	})}
	for at := range changed {
		errs = append(errs, tx.PutRecord(records[at]))
	}
	return record, errors.Join(errs...)
}
