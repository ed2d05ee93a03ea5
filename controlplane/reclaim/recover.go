package reclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/ids"
)

// The steps of the restore of a REGRESSED cell, before those of every restore.
const (
	stepLift   = "REGRESSED" // the shard stands above every witness, settle-only
	stepReplay = "REPLAYING" // what the books know is applied again
	stepLog    = "MESSAGES"  // the log was read again up to where anybody saw it
)

// recovery gives the step at which the restore of a cell whose shard went back in time is, or "" where it
// is a plain one, or one by now.
func recovery(op core.Operation, cell core.Cell) string {
	switch {
	case op.Kind != core.OperationRestore, op.DoneStep(stepLog):
		return ""
	case cell.State == core.CellRegressed:
		return stepLift
	case op.DoneStep(stepReplay):
		return stepLog
	case op.DoneStep(stepLift):
		return stepReplay
	}
	return ""
}

// advanceRecovery carries out one step of it. Each is repeated whole after a crash, and finds done what
// was done: the shard's functions know the version, the adjustments their ids, the books their records.
func (d *Driver) advanceRecovery(ctx context.Context, w *work) error {
	switch w.recovering {
	case stepLift:
		return d.lift(ctx, w)
	case stepReplay:
		return d.replay(ctx, w)
	default:
		return d.readAgain(ctx, w)
	}
}

// lift raises the shard above every witness and tells it what has to be reached; then the cell is
// RESTORING, and what was seen before is forgotten: from now on the shard is what it is.
func (d *Driver) lift(ctx context.Context, w *work) error {
	seen, _, err := d.store.Witness(ctx, w.cell.Spec.ID)
	if err != nil {
		return err
	}
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	version := fencing.Version(w.cell.FenceVersion)
	seen.Version = cmp.Or(seen.Version, version-1)
	var now fencing.Witness
	err = d.with(ctx, w, func(ctx context.Context, shard Shard) (err error) {
		if now, err = shard.Witness(ctx); err != nil {
			return err
		}
		if err := movedSince(seen, now); err != nil {
			return err
		}
		to := fencer.RecoverTo{Seen: seen}
		for _, p := range snapshot.Proofs() {
			if p.Cell == w.cell.Spec.ID && p.Evidence == core.EvidenceStoreFence {
				to.Fences = append(to.Fences, provenBy(p))
			}
		}
		return shard.RecoverBegin(ctx, w.op.Subject, version, w.op.InstanceGroup, w.op.Reason, to)
	})
	if err != nil {
		return err
	}
	return d.move(ctx, w, "recovery begins", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		cell.State, cell.InstanceGroup = core.CellRestoring, op.InstanceGroup
		op = op.Finished(stepLift, fmt.Sprintf("shard %s raised to fence version %s, settle-only; %s was seen at version %s", now.Identity, version, seen.Identity, seen.Version), stepReplay, tx.Now())
		return cell, op, tx.PutWitness(cell.Spec.ID, fencing.Witness{Identity: now.Identity, Version: version})
	})
}

// errMoved: buckets were handed over by or to the shard, and it does not know any more. Their orders cannot
// be told apart from those of the new home, so nothing is made again.
var errMoved = errors.New("buckets were handed over, and the shard does not know of it any more")

func movedSince(seen, now fencing.Witness) error {
	for campaign, version := range seen.Routes {
		if version > max(1, now.Routes[campaign]) {
			return fmt.Errorf("%w: campaign %s was seen at route version %d, the shard shows %d", errMoved, campaign, version, now.Routes[campaign])
		}
	}
	return nil
}

// replay applies what the shard lost, in its order, with units of the reserve where orders that were not
// closed yet hold what was given away since.
func (d *Driver) replay(ctx context.Context, w *work) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	if err := d.decide(ctx, w, snapshot); err != nil {
		return err
	}
	lost, err := fencing.PlanRecovery(lostOf(d.view.Snapshot(), w.cell.Spec.ID)) // with what was decided just now
	if err != nil {
		return err
	}
	// What a driver before this one took from the reserve comes first: it is there for one that follows.
	slices.SortStableFunc(lost, func(a, b fencing.Lost) int { return cmp.Compare(w.covers(b), w.covers(a)) })
	err = d.with(ctx, w, func(ctx context.Context, shard Shard) error {
		for _, a := range lost {
			if err := d.replayOne(ctx, w, shard, a); err != nil {
				return fmt.Errorf("adjustment %s: %w", a.ID, err)
			}
		}
		return shard.RecoverMessages(ctx, w.op.Subject, fencing.Version(w.cell.FenceVersion))
	})
	if err != nil {
		return err
	}
	return d.move(ctx, w, "adjustments replayed", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		return cell, op.Finished(stepReplay, fmt.Sprintf("%d adjustments stand", len(lost)), stepLog, tx.Now()), nil
	})
}

// covers is 1 for a grant of the recovery itself, else 0.
func (w *work) covers(a fencing.Lost) int {
	if a.Version.Int64() == w.cell.FenceVersion {
		return 1
	}
	return 0
}

// answersAtOnce bounds one page of a shard's answers.
const answersAtOnce = 1000

// decide ends what the books still wait for. What the shard has decided is so: only its answer was lost.
// Of what it does not know, a grant that the book has moved counts as applied, because its units are the
// cell's and may be sold; everything else did not happen.
func (d *Driver) decide(ctx context.Context, w *work, s view.Snapshot) error {
	open := map[string][]core.Adjustment{}
	answers := map[core.BookKey]map[string]core.Outcome{}
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			if a.Cell == w.cell.Spec.ID && a.Open() && a.Number > 0 {
				open[r.ID], answers[a.Key] = append(open[r.ID], a), map[string]core.Outcome{}
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	err := d.with(ctx, w, func(ctx context.Context, shard Shard) error {
		for key, of := range answers {
			if err := answered(ctx, shard, key, of); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for record, adjustments := range open {
		for _, a := range adjustments {
			settled, err := d.store.Settle(ctx, w.leader, record, a.ID, cmp.Or(answers[a.Key][a.ID], decided(a)))
			if err != nil {
				return fmt.Errorf("%s of %s: %w", a.ID, record, err)
			}
			if settled.Revision > 0 {
				if _, err := d.view.WaitFor(ctx, settled.Revision); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// answered reads the outcome of every numbered adjustment of a SKU that the shard decided.
func answered(ctx context.Context, shard Shard, key core.BookKey, out map[string]core.Outcome) error {
	for after := ""; ; {
		page, err := shard.Adjustments(ctx, skuOf(key), after, answersAtOnce)
		if err != nil {
			return err
		}
		for _, a := range page {
			out[a.ID], after = core.Outcome(a.Outcome), a.ID
		}
		if len(page) < answersAtOnce {
			return nil
		}
	}
}

func decided(a core.Adjustment) core.Outcome {
	switch {
	case a.Kind == core.KindGrant && a.State == core.StateBooked:
		return core.OutcomeApplied
	case a.Kind == core.KindReturn:
		return core.OutcomeRefused
	}
	return core.OutcomeVoided
}

// lostOf lists every adjustment of a cell that its shard has to have. Units that a fence sealed are in
// its proof, also where no reclaim has booked them; settled campaigns sell nothing any more.
func lostOf(s view.Snapshot, cell ids.CellID) []fencing.Lost {
	var out []fencing.Lost
	for _, c := range s.Campaigns() {
		if c.State == core.CampaignSettled {
			continue
		}
		for _, r := range s.Records(c.Spec.ID, 0, everything) {
			for _, a := range r.Adjustments {
				kind, concerns := kinds[a.Kind]
				if a.Cell != cell || !concerns || a.Number == 0 || a.Open() && a.State != core.StateBooked {
					continue
				}
				outcome := a.Outcome
				if a.Open() {
					outcome = decided(a)
				}
				out = append(out, fencing.Lost{
					ID: a.ID, SKU: skuOf(a.Key), Version: fencing.Version(a.FenceVersion), Number: a.Number, Kind: kind,
					Units: a.Units.Int64(), Outcome: fencing.Outcome(outcome),
				})
			}
		}
	}
	for _, p := range s.Proofs() {
		if p.Cell != cell || p.Evidence != core.EvidenceStoreFence {
			continue
		}
		for _, sealed := range p.Sealed {
			if c, known := s.Campaign(sealed.Key.Campaign); !known || c.State == core.CampaignSettled {
				continue
			}
			out = append(out, fencing.Lost{
				ID: SealID(cell, p.FenceVersion, sealed.Key), SKU: skuOf(sealed.Key), Version: fencing.Version(p.FenceVersion), Kind: fencing.KindSeal,
				Units: sealed.Units.Int64(), Outcome: fencing.OutcomeApplied,
			})
		}
	}
	return out
}

// replayOne applies one adjustment. Units that are missing for it are taken from the reserve: the book
// first, so that nobody else gets them, then the shard.
func (d *Driver) replayOne(ctx context.Context, w *work, shard Shard, a fencing.Lost) error {
	version := fencing.Version(w.cell.FenceVersion)
	missing, err := shard.RecoverAdjustment(ctx, w.op.Subject, version, a)
	if err != nil || missing == 0 {
		return err
	}
	cover, err := d.cover(ctx, w, a, missing)
	if err != nil {
		return err
	}
	if _, err := shard.RecoverAdjustment(ctx, w.op.Subject, version, cover); err != nil {
		return err
	}
	if missing, err = shard.RecoverAdjustment(ctx, w.op.Subject, version, a); err == nil && missing > 0 {
		err = fmt.Errorf("%w: %d units of %s are missing; closings go on and give them back, payments wait", errNotYet, missing, a.SKU)
	}
	return err
}

// cover grants the cell what is missing for an adjustment, from the reserve; less where it has less. One
// more of the same adjustment is another record.
func (d *Driver) cover(ctx context.Context, w *work, a fencing.Lost, missing int64) (fencing.Lost, error) {
	out := fencing.Lost{SKU: a.SKU, Version: fencing.Version(w.cell.FenceVersion), Kind: fencing.KindGrant, Outcome: fencing.OutcomeApplied}
	book, err := d.store.Book(ctx, keyOf(a.SKU))
	if err != nil {
		return out, err
	}
	units := min(missing, book.Reserve.Int64())
	held, _ := book.Allocation(w.cell.Spec.ID)
	if held.FenceVersion < w.cell.FenceVersion {
		held.LastNumber = 0
	}
	if units == 0 {
		return out, fmt.Errorf("%w: %d units of %s are missing and the reserve is empty; closings go on and give them back, payments wait", errNotYet, missing, a.SKU)
	}
	n, err := quantity.New(units)
	if err != nil {
		return out, err
	}
	out.ID = fmt.Sprintf("cover.%s.%d.%s", w.cell.Spec.ID, held.LastNumber+1, a.ID)
	moved, err := d.store.Move(ctx, store.Move{
		RecordID: out.ID, Parameters: core.Digest("cover", string(w.cell.Spec.ID), a.ID), Key: keyOf(a.SKU), Actor: w.op.Actor, Method: "cover", Reason: w.op.Reason,
		OperationID: w.op.ID, Leader: &w.leader,
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			next, step, err := book.Cover(cells[w.cell.Spec.ID], n)
			return next, []core.Adjustment{{
				ID: out.ID, Key: keyOf(a.SKU), Cell: w.cell.Spec.ID, Kind: core.KindGrant, Units: n, State: core.StateDone, Outcome: core.OutcomeApplied,
				Step: step, Actor: w.op.Actor, Reason: w.op.Reason, CreatedAt: d.clock.Now().UTC(),
			}}, err
		},
	})
	if err != nil {
		return out, err
	}
	made := moved.Record.Adjustments[0]
	out.Number, out.Units = made.Number, made.Units.Int64()
	_, err = d.view.WaitFor(ctx, moved.Revision)
	return out, err
}

// readAgain waits until the cell has read its log again, and ends the recovery in the shard. From there
// the restore goes on as every other: settle-only for the close grace, then ACTIVE.
func (d *Driver) readAgain(ctx context.Context, w *work) error {
	var unread int
	err := d.with(ctx, w, func(ctx context.Context, shard Shard) (err error) {
		unread, err = shard.RecoverFinish(ctx, w.op.Subject, fencing.Version(w.cell.FenceVersion))
		return err
	})
	if err == nil && unread > 0 {
		err = fmt.Errorf("%w: %d partitions are read again by the cell's processes", errNotYet, unread)
	}
	if err != nil {
		return err
	}
	return d.move(ctx, w, "log read again", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		return cell, op.Finished(stepLog, "messages that were seen have their orders again", stepSettle, tx.Now()), nil
	})
}
