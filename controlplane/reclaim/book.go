package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// maxSettled bounds the journal records that one transaction changes: each is
// read, compared and put, and etcd takes 128 operations. What is more is settled
// beforehand, each in a transaction of its own.
const maxSettled = 48

// everything is the bound of a listing that must be whole.
const everything = 1 << 30

// book carries out the moves of one SKU: one transaction on the book, every
// journal record that it settles, and a record of its own, whose id is the
// seal's. Once that record exists the SKU is done; a book that is gone, and of which the shard holds
// nothing, needs none.
func (d *Driver) book(ctx context.Context, w *work, key core.BookKey) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	open, closed := journal(snapshot, key, w.cell.Spec.ID)
	if open, closed, err = d.settleFirst(ctx, w, key, snapshot, open, closed); err != nil {
		return err
	}
	var made core.Record
	revision, err := d.store.Update(ctx, "reclaim "+key.String(), func(tx *store.Tx) (err error) {
		made, err = d.tryBook(tx, w, key, snapshot, open, closed)
		return err
	})
	if err != nil {
		return err
	}
	if made.ID == "" {
		if revision, err = d.store.Head(ctx); err == nil {
			_, err = d.view.WaitFor(ctx, revision) // which shows the book no more
		}
		return err
	}
	d.store.Count(made.Adjustments)
	d.log.InfoContext(ctx, "reclaimed", w.fields("sku_reclaimed", telemetry.CampaignID, key.Campaign, telemetry.SKUID, key.SKU, "to_reserve", freed(made))...)
	_, err = d.view.WaitFor(ctx, revision) // or the SKU would be listed as pending again
	return err
}

func (d *Driver) tryBook(tx *store.Tx, w *work, key core.BookKey, snapshot view.Snapshot, open, closed []core.Record) (core.Record, error) {
	if _, err := w.mine(tx); err != nil {
		return core.Record{}, err
	}
	cell, err := w.owned(tx)
	if err != nil {
		return core.Record{}, err
	}
	id := SealID(cell.Spec.ID, w.proof.Version.Int64(), key)
	if record, done, err := tx.Record(id); err != nil || done {
		return record, err
	}
	book, known, err := tx.Book(key)
	if err != nil {
		return core.Record{}, err
	}
	if facts, _ := w.proof.Facts(skuOf(key)); !known && facts.Granted+facts.Sealed == 0 {
		return core.Record{}, nil // a publish that was given up took it back; no cell heard of it
	}
	if !known {
		return core.Record{}, fmt.Errorf("cell %s: the shard holds units of %s, which has no book: %w", cell.Spec.ID, key, fencing.ErrProofMismatch)
	}
	fresh := make([]core.Record, len(open))
	for i, r := range open {
		if fresh[i], _, err = tx.Record(r.ID); err != nil {
			return core.Record{}, err
		}
	}
	plan, err := planFor(book, append(slices.Clone(closed), fresh...), snapshot, w.proof)
	if err != nil {
		return core.Record{}, err
	}
	return w.apply(tx, cell, book, plan, fresh, id)
}

// planFor asks fencing for the moves. Under `reclaim: NEVER` the sealed units
// stay in the allocation, frozen; grants that never arrived and returns that did
// are settled all the same.
func planFor(book core.Book, records []core.Record, s view.Snapshot, proof fencing.Proof) (fencing.ReclaimPlan, error) {
	cell := ids.CellID(proof.Cell)
	frozen := frozenBefore(s, cell, book.Key, proof.Version.Int64())
	plan, err := fencing.PlanReclaim(bookOf(cell, book, records, frozen), proof)
	if err != nil || !neverReclaimed(s, book.Key) {
		return plan, err
	}
	plan.Moves = slices.DeleteFunc(plan.Moves, func(m fencing.Move) bool {
		if m.Kind == fencing.MoveSeal {
			plan.After, plan.Frozen = plan.After+m.Units, plan.Frozen+m.Units
		}
		return m.Kind == fencing.MoveSeal
	})
	return plan, plan.Check()
}

func neverReclaimed(s view.Snapshot, key core.BookKey) bool {
	campaign, known := s.Campaign(key.Campaign)
	return known && campaign.Spec.Reclaim == core.ReclaimNever
}

// frozenBefore is what earlier fences of the cell sealed and nobody booked back.
func frozenBefore(s view.Snapshot, cell ids.CellID, key core.BookKey, before int64) int64 {
	var frozen int64
	for version := int64(1); version < before; version++ {
		proof, known := s.Proof(cell, version)
		if !known {
			continue
		}
		id := SealID(cell, version, key)
		if record, booked := s.Record(id); booked && record.Find(id) >= 0 {
			continue
		}
		for _, sealed := range proof.Sealed {
			if sealed.Key == key {
				frozen += sealed.Units.Int64()
			}
		}
	}
	return frozen
}

// apply puts the changed book, the settled records and the record of the reclaim.
func (w *work) apply(tx *store.Tx, cell core.Cell, book core.Book, plan fencing.ReclaimPlan, records []core.Record, id string) (core.Record, error) {
	record := core.Record{
		ID: id, Key: book.Key, Actor: w.op.Actor, Reason: w.op.Reason, OperationID: w.op.ID, At: tx.Now(), Parameters: freedText(plan),
	}
	changed := map[int]bool{}
	var err error
	for _, m := range plan.Moves {
		if m.Kind == fencing.MoveSeal {
			var seal core.Adjustment
			if book, seal, err = w.seal(tx, cell, book, m); err != nil {
				return core.Record{}, err
			}
			record.Adjustments = append(record.Adjustments, seal)
			continue
		}
		at, i := find(records, m.AdjustmentID)
		if at < 0 {
			return core.Record{}, fmt.Errorf("%w: adjustment %s is to be settled and was not read", core.ErrBroken, m.AdjustmentID)
		}
		records[at].Adjustments = slices.Clone(records[at].Adjustments)
		a := &records[at].Adjustments[i]
		var effect core.Effect
		if *a, effect, err = a.Settle(w.outcome(m)); err != nil {
			return core.Record{}, err
		}
		a.Evidence = core.EvidenceStoreFence
		if book, err = book.Apply(*a, effect); err != nil {
			return core.Record{}, err
		}
		changed[at] = true
	}
	if a, _ := book.Allocation(cell.Spec.ID); a.Granted.Int64() != plan.After {
		return core.Record{}, fmt.Errorf("%w: %s: cell %s was to be left %d units, and has %s", core.ErrBroken, book.Key, cell.Spec.ID, plan.After, a.Granted)
	}
	book = book.Stamp(id)
	record.BookVersion = book.Version
	errs := []error{tx.PutBook(book), tx.PutRecord(record), tx.Audit(core.Audit{
		Actor: w.op.Actor, Method: "reclaim", OperationID: w.op.ID, Subject: "book " + book.Key.String(), Reason: record.Parameters,
	})}
	for at := range changed {
		errs = append(errs, tx.PutRecord(records[at]))
	}
	return record, errors.Join(errs...)
}

func (w *work) seal(tx *store.Tx, cell core.Cell, book core.Book, m fencing.Move) (core.Book, core.Adjustment, error) {
	units, err := quantityOf(m.Units)
	if err != nil {
		return core.Book{}, core.Adjustment{}, err
	}
	book, err = book.SealBack(cell.Spec.ID, units)
	return book, core.Adjustment{
		ID: m.AdjustmentID, Key: book.Key, Cell: cell.Spec.ID, Kind: core.KindSeal, Units: units, State: core.StateDone, Outcome: core.OutcomeApplied,
		Step: core.Step{FenceVersion: w.proof.Version.Int64()}, Actor: w.op.Actor, Reason: w.op.Reason, CreatedAt: tx.Now(), Evidence: core.EvidenceStoreFence,
	}, err
}

// outcome is the shard's word on a move's adjustment; one that it never heard of
// is VOIDED by the proof.
func (w *work) outcome(m fencing.Move) core.Outcome {
	for _, a := range w.proof.Applied {
		if a.ID == m.AdjustmentID {
			return core.Outcome(a.Outcome)
		}
	}
	return core.OutcomeVoided
}

// settleFirst settles, one by one, what would not fit into the transaction, if
// the plan as a whole comes out.
func (d *Driver) settleFirst(ctx context.Context, w *work, key core.BookKey, s view.Snapshot, open, closed []core.Record) (left, all []core.Record, err error) {
	if len(open) <= maxSettled {
		return open, closed, nil
	}
	book, err := d.store.Book(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range open {
		if open[i], err = d.store.Record(ctx, r.ID); err != nil {
			return nil, nil, err
		}
	}
	plan, err := planFor(book, append(slices.Clone(closed), open...), s, w.proof)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range open[maxSettled:] {
		for _, m := range plan.Moves {
			if r.Find(m.AdjustmentID) < 0 {
				continue
			}
			if _, err := d.store.Settle(ctx, w.leader, r.ID, m.AdjustmentID, w.outcome(m)); err != nil {
				return nil, nil, err
			}
		}
		settled, err := d.store.Record(ctx, r.ID)
		if err != nil {
			return nil, nil, err
		}
		closed = append(closed, settled)
	}
	return open[:maxSettled], closed, nil
}

// writeReclaimed marks the cell: what the proof names is booked.
func (d *Driver) writeReclaimed(ctx context.Context, w *work) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	var sum int64
	for _, record := range w.reclaims(snapshot) {
		sum += freed(record)
	}
	detail := fmt.Sprintf("%d units are back in the reserve", sum) + kept(snapshot, w.proof)
	return d.move(ctx, w, "reclaimed", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		cell.Reclaimed = true
		return cell, op.Finished(stepReclaim, detail, fencing.Reclaimed.String(), tx.Now()), nil
	})
}

// namedKept bounds the SKUs that an operation names.
const namedKept = 8

// kept names the SKUs whose sealed units stay frozen in the cell because their
// campaign says so.
func kept(s view.Snapshot, proof fencing.Proof) string {
	var names []string
	more := 0
	for _, f := range proof.SKUs {
		switch {
		case f.Sealed == 0 || !neverReclaimed(s, keyOf(f.SKU)):
		case len(names) < namedKept:
			names = append(names, fmt.Sprintf("%s keeps %d frozen (its campaign says reclaim: NEVER)", keyOf(f.SKU), f.Sealed))
		default:
			more++
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(append([]string{""}, names...), "; ")
}
