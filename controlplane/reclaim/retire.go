package reclaim

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// The steps of a retirement. The cell is RETIRED in its record before its fence row
// is ended: from then on nobody gives it anything, and a row that cannot be ended yet
// is that of a shard without a unit.
const (
	stepLook   = "CHECKING"
	stepEndRow = "ENDING"
)

// LeaveOrder asks to take a cell out of service: to drain or to retire it.
type LeaveOrder struct {
	Cell            ids.CellID
	OperationID     string
	ExpectedVersion int64 // of the cell's record; 0: any
	Reason          string
	// May refuses the caller the cell as it stands now; nil: everybody may.
	May func(core.Cell) error
}

func (l LeaveOrder) check() error {
	if l.Reason == "" {
		return rpcstatus.Invalid(rpcstatus.Violation{Field: "reason", Rule: "must say why"})
	}
	return nil
}

// Retire asks to take a cell out for good. It is looked at twice: now, so that who
// asks is told what is in the way, and by the leader before anything is written.
//
// Errors: core.ErrUnknownCell, core.ErrVersion, core.ErrIDReused, core.ErrCellState
// where another operation has the cell; fencing.ErrDrainFirst, fencing.ErrNotEmpty
// with what there is; rpcstatus.ErrUnavailable where the shard of a draining cell
// does not answer: an empty cell is told by its shard alone.
func (o *Orders) Retire(ctx context.Context, who intent.Caller, in LeaveOrder, validateOnly bool) (core.Operation, error) {
	if err := in.check(); err != nil {
		return core.Operation{}, err
	}
	if err := o.nothingHeld(ctx, in); err != nil {
		return core.Operation{}, err
	}
	return o.accept(ctx, who, order{
		kind: core.OperationRetire, cell: in.Cell, id: in.OperationID, parameters: core.Digest("retire", string(in.Cell)), expected: in.ExpectedVersion,
		reason: in.Reason, validateOnly: validateOnly, may: in.May, event: fencing.CellEvent{Kind: fencing.Retire, Empty: true},
		edit: func(op core.Operation, cell core.Cell) (core.Operation, core.Cell) {
			op.Step, op.FenceVersion = stepLook, cell.FenceVersion
			if cell.State == core.CellDraining {
				op.FenceVersion++ // a fenced shard's row is ended already; a provisioned cell's was never used
			}
			return op, cell
		},
	})
}

// nothingHeld refuses, with what there is, a cell that may leave and is not empty. All
// else is the table's to refuse.
func (o *Orders) nothingHeld(ctx context.Context, in LeaveOrder) error {
	s := o.View.Snapshot()
	cell, known := s.Cell(in.Cell)
	mayLeave := cell.State == core.CellDraining || cell.State == core.CellFenced
	if !known || !mayLeave {
		return nil
	}
	if in.May != nil {
		if err := in.May(cell); err != nil {
			return err
		}
	}
	all := Held(s, in.Cell)
	if cell.State == core.CellDraining {
		words, err := o.shardHolds(ctx, cell, unsettled(s))
		if err != nil {
			return err
		}
		if words != "" {
			all = append(all, "in its shard "+words)
		}
	}
	if len(all) == 0 {
		return nil
	}
	held := strings.Join(all, ", ")
	why := &fencing.TransitionError{
		Machine: "cell", Cell: string(cell.Spec.ID), From: cell.State.String(), Event: fencing.Retire.String(), Why: fmt.Errorf("%w: %s", fencing.ErrNotEmpty, held),
	}
	return rpcstatus.With(refusal{why}, map[string]string{
		"cell_id": string(cell.Spec.ID), "state": cell.State.String(), "version": strconv.FormatInt(cell.Version, 10), "held": held,
	}, nil, 0)
}

// shardHolds reads what the shard of a draining cell still has.
func (o *Orders) shardHolds(ctx context.Context, cell core.Cell, campaigns []string) (string, error) {
	shard, err := o.Shards.Open(ctx, cell.Spec)
	if err != nil {
		return "", outward(err)
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	left, err := shard.Unfinished(ctx, campaigns)
	return left.Words(), outward(err)
}

func unsettled(s view.Snapshot) []string {
	out := []string{}
	for _, c := range s.Campaigns() {
		if c.State != core.CampaignSettled {
			out = append(out, string(c.Spec.ID))
		}
	}
	return out
}

// namedHeld bounds the SKUs and campaigns that a refusal names.
const namedHeld = 8

// Held lists, in words, what the records say a cell still has of campaigns that are
// not settled: units, moves that are not decided, buckets that it has, gives or takes,
// operations. Empty: nothing. What was written off is nobody's. A handover to a cell is
// ordered while that is ACTIVE: whoever looks at a revision after it left sees them all.
func Held(s view.Snapshot, cell ids.CellID) []string {
	var out []string
	for _, b := range s.Books("") {
		if a, has := b.Allocation(cell); has && !b.Settled && a.Granted.Cmp(a.WrittenOff) != 0 {
			out = append(out, fmt.Sprintf("%s units of %s", a.Granted, b.Key))
		}
	}
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			if a.Cell == cell && a.Open() {
				out = append(out, fmt.Sprintf("adjustment %s of %s is open", a.ID, a.Key))
			}
		}
	}
	for _, c := range s.Campaigns() {
		if route, known := s.Route(c.Spec.ID); known && c.State != core.CampaignSettled && (route.Owns(cell) || route.Moving(cell)) {
			out = append(out, fmt.Sprintf("buckets of campaign %s", c.Spec.ID))
		}
	}
	if more := len(out) - namedHeld; more > 0 {
		out = append(out[:namedHeld], fmt.Sprintf("and %d more", more))
	}
	return out
}

// placeRetire names the step that a retirement is at. Its facts are the cell's record
// and the finished steps; nothing else decides.
func (w *work) placeRetire() {
	if w.step = stepLook; w.cell.State == core.CellRetired {
		w.step = stepEndRow
	}
	w.reclaim = fencing.Reclaim{Cell: w.op.Subject, Version: fencing.Version(w.op.FenceVersion)}
}

// advanceRetire takes a retirement one stored step on:
//
//	CHECKING  the records and, of a draining cell, its shard say that nothing is left;
//	          the cell is RETIRED at the next version
//	ENDING    the fence row is ended at that version; the proof is stored
func (d *Driver) advanceRetire(ctx context.Context, w *work) error {
	switch {
	case w.step == stepLook:
		return d.retire(ctx, w)
	case w.op.DoneStep(stepEndRow):
		return d.finish(ctx, w)
	default:
		return d.endRow(ctx, w)
	}
}

// retire writes RETIRED where nothing is left. What is left ends the operation: the
// cell is as it was.
func (d *Driver) retire(ctx context.Context, w *work) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	if held := Held(snapshot, w.cell.Spec.ID); len(held) > 0 {
		return d.end(ctx, w, core.OperationFailed, "the cell still has "+strings.Join(held, ", "))
	}
	next, _, err := fencing.StepCell(cellOf(w.cell, len(snapshot.Instances(w.cell.Spec.ID)) > 0), fencing.CellEvent{Kind: fencing.Retire, Empty: true})
	if err != nil { // it was fenced, or went back in time, since this was asked for
		return d.end(ctx, w, core.OperationFailed, err.Error())
	}
	drained := w.cell.State == core.CellDraining
	if drained {
		left, err := d.unfinished(ctx, w, unsettled(snapshot))
		if err != nil {
			return err
		}
		if left != "" {
			return d.end(ctx, w, core.OperationFailed, "the cell's shard still has "+left)
		}
	}
	return d.move(ctx, w, "retire", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		cell.State, cell.FenceVersion = core.CellState(next.State.Stored()), op.FenceVersion
		op = op.Finished(stepLook, "nothing is left of campaigns that are not settled", stepEndRow, tx.Now())
		if !drained {
			op = op.Finished(stepEndRow, "no process can write its shard", "", tx.Now())
		}
		return cell, op, nil
	})
}

// unfinished reads what the shard still has, under this leader's term.
func (d *Driver) unfinished(ctx context.Context, w *work, campaigns []string) (words string, err error) {
	err = d.with(ctx, w, func(ctx context.Context, shard Shard) error {
		left, err := shard.Unfinished(ctx, campaigns)
		if err != nil {
			return err
		}
		if words = left.Words(); words == "" && left.Leaving > 0 {
			return fmt.Errorf("%w: %d outbox rows have not left the shard", errNotYet, left.Leaving)
		}
		return nil
	})
	return words, err
}

// endRow ends the shard's row at the retirement's version and stores what it proves.
// A shard that has more than the books said when the row was ended is named: its units
// are nobody's any more, and were in no allocation.
func (d *Driver) endRow(ctx context.Context, w *work) error {
	if err := d.with(ctx, w, w.prove); err != nil {
		return err
	}
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	proof, err := storedProof(w.proof.Trim(sides(snapshot, w.cell.Spec.ID)), w.fencedAt)
	if err != nil {
		return err
	}
	stored, err := d.store.StageProof(ctx, w.leader, proof)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("its fence row is ended at version %d (STORE_FENCE)", proof.FenceVersion)
	for _, key := range pending(snapshot, w.cell.Spec.ID, w.proof) {
		if f, _ := w.proof.Facts(skuOf(key)); f.Granted+f.Sealed > 0 {
			detail += fmt.Sprintf("; the shard had %d units of %s, which the book does not allocate", f.Granted+f.Sealed, key)
		}
	}
	return d.move(ctx, w, "retired", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		if _, have, err := tx.Proof(proof.Cell, proof.FenceVersion); err != nil || have {
			return cell, op, orBroken(err, "a proof of %s/%d stands, and the retirement has not stored it", proof.Cell, proof.FenceVersion)
		}
		cell.ProofID, cell.Reclaimed = core.ProofID(proof.Cell, proof.FenceVersion), true
		return cell, op.Finished(stepEndRow, detail, "", tx.Now()), tx.PutProof(stored)
	})
}
