package hygiene_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/hygiene"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const day = 24 * time.Hour

func (r *rig) pruner() *hygiene.Pruner {
	r.t.Helper()
	p, err := hygiene.NewPruner(0, r.deps())
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) round(p *hygiene.Pruner) {
	r.t.Helper()
	if err := p.Round(testkit.Deadline(r.t), r.leader); err != nil {
		r.t.Fatal(err)
	}
	head, err := r.store.Head(testkit.Deadline(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.view.WaitFor(testkit.Deadline(r.t), head); err != nil {
		r.t.Fatal(err)
	}
}

func over(id string, age time.Duration) core.Operation {
	return running(id).End(core.OperationDone, "", noon.Add(-age))
}

func (r *rig) approval(id string, state core.ApprovalState, age time.Duration) {
	r.t.Helper()
	r.put(func(tx *store.Tx) error {
		_, _, err := tx.Approval(id)
		a := core.Approval{ID: id, Kind: "cancel-campaign", Subject: "c", Requester: "ann", State: state, CreatedAt: noon.Add(-age - time.Hour), ExpiresAt: noon}
		if state != core.ApprovalPending {
			a.Approver, a.DecidedAt = "bob", noon.Add(-age)
		}
		return errors.Join(err, tx.PutApproval(a))
	})
}

func (r *rig) cell(id ids.CellID, version int64, edit func(*core.Cell)) {
	r.t.Helper()
	r.put(func(tx *store.Tx) error {
		c, known, err := tx.Cell(id)
		if !known {
			c = core.Cell{State: core.CellActive, FenceVersion: version, InstanceGroup: "a", Spec: core.CellSpec{
				ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
				Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1}, Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "c"},
			}}
		}
		c.Version++
		if edit != nil {
			edit(&c)
		}
		return errors.Join(err, tx.PutCell(c))
	})
}

// What ended longer ago than operations.keep goes with its approval, in batches;
// what is open, younger or named by a cell stays.
func TestEndedOperationsGo(t *testing.T) {
	r := newRig(t)
	old := 60 // more than two batches
	for i := range old {
		r.operation(over(fmt.Sprint("old", i), 7*day+time.Minute))
	}
	r.approval("old0", core.ApprovalApproved, 8*day)
	r.operation(over("young", 6*day))
	r.approval("young", core.ApprovalApproved, 6*day)
	waits := running("waits") // for ever, and its approval was given long ago
	waits.StartedAt = noon.Add(-30 * day)
	r.operation(waits)
	r.approval("waits", core.ApprovalApproved, 29*day)
	r.operation(over("held", 8*day))
	r.cell("cell-1", 1, func(c *core.Cell) { c.OperationID = "held" })
	r.approval("outlived", core.ApprovalRejected, 8*day) // an earlier round was cut off
	r.approval("undecided", core.ApprovalPending, 8*day)

	p := r.pruner()
	r.round(p)
	s := r.view.Snapshot()
	var left []string
	for _, op := range s.Operations(0, 0) {
		left = append(left, op.ID)
	}
	if fmt.Sprint(left) != "[held waits young]" {
		t.Errorf("operations left: %v", left)
	}
	left = nil
	for _, a := range s.Approvals(0, 0) {
		left = append(left, a.ID)
	}
	if fmt.Sprint(left) != "[undecided waits young]" {
		t.Errorf("approvals left: %v", left)
	}
	for folder, want := range map[string]float64{"operations": float64(old), "approvals": 2, "proofs": 0} {
		if got := value(t, r.registry, "cellquota_records_removed_total", folder); got != want {
			t.Errorf("%s removed: %v, want %v", folder, got, want)
		}
	}
	trail, err := r.store.TrailBefore(testkit.Deadline(t), store.KindAudit, "", 10)
	if err != nil || len(trail) != 3 || trail[0].Audit.Subject != "operations" {
		t.Errorf("audit: %+v, %v", trail, err)
	}
}

// An operation about a campaign stays as long as the campaign's journal, which holds
// its moves under ids of its own: a repeat finds both or neither.
func TestAnOperationStaysAsLongAsItsJournal(t *testing.T) {
	r := newRig(t)
	about := func(id, kind, subject string) {
		op := over(id, 8*day)
		op.Kind, op.Subject = kind, subject
		r.operation(op)
	}
	about("moved", core.OperationTransfer, "c/s")
	about("limit", core.OperationSetLimit, "c/s")
	about("plan", core.OperationRebalance, "c")
	about("other", core.OperationTransfer, "settled/s") // whose journal the archive has
	about("fence", core.OperationFence, "c")            // of a cell that is called as the campaign is
	r.record("moved.return", core.Adjustment{ID: "moved.return", Key: sku, Cell: "cell-1", Kind: core.KindReturn, Units: quantity.Must(1), State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 1, Number: 1}})
	left := func() string {
		var ids []string
		for _, op := range r.view.Snapshot().Operations(0, 0) {
			ids = append(ids, op.ID)
		}
		return fmt.Sprint(ids)
	}
	p := r.pruner()
	if r.round(p); left() != "[plan limit moved]" {
		t.Errorf("operations left: %s", left())
	}
	r.put(func(tx *store.Tx) error { // the campaign settled
		_, _, err := tx.Record("moved.return")
		return errors.Join(err, tx.DropRecord("moved.return"))
	})
	if r.round(p); left() != "[]" {
		t.Errorf("operations left without a journal: %s", left())
	}
}

// A deposed leader removes nothing, and nobody does while etcd is RESTORED.
func TestWhoMayPrune(t *testing.T) {
	r := newRig(t)
	r.operation(over("old", 8*day))
	p, deposed := r.pruner(), r.leader
	deposed.CreateRevision--
	if err := p.Round(testkit.Deadline(t), deposed); !errors.Is(err, core.ErrNotLeader) {
		t.Errorf("a deposed leader: %v", err)
	}
	if err := r.store.MarkRestored(testkit.Deadline(t), core.Restored{Why: "a backup", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, wait, func() error {
		if _, stands := r.view.Snapshot().Restored(); !stands {
			return errors.New("the view has not heard")
		}
		return nil
	})
	r.round(p)
	if _, known := r.view.Snapshot().Operation("old"); !known {
		t.Error("it was removed")
	}
}

var sku = core.BookKey{Campaign: "c", SKU: "s"}

func (r *rig) proof(cell ids.CellID, version int64, age time.Duration, sealed int64) {
	r.t.Helper()
	r.put(func(tx *store.Tx) error {
		_, _, err := tx.Proof(cell, version)
		p := core.Proof{Cell: cell, FenceVersion: version, Evidence: core.EvidenceStoreFence, FencedAt: noon.Add(-age)}
		if sealed > 0 {
			p.Sealed = []core.SKUUnits{{Key: sku, Units: quantity.Must(sealed)}}
		}
		return errors.Join(err, tx.PutProof(p))
	})
}

func (r *rig) record(id string, a ...core.Adjustment) {
	r.t.Helper()
	r.put(func(tx *store.Tx) error {
		_, _, err := tx.Record(id)
		return errors.Join(err, tx.PutRecord(core.Record{ID: id, Key: sku, Actor: "me", Adjustments: a}))
	})
}

func (r *rig) proofs() (left []string) {
	for _, p := range r.view.Snapshot().Proofs() {
		left = append(left, core.ProofID(p.Cell, p.FenceVersion))
	}
	return left
}

// A proof goes when a later one replaced it, it is old, and nothing that it sealed
// or fenced is open; the newest stays, and so does the one the cell stands on.
func TestReplacedProofsGo(t *testing.T) {
	r := newRig(t)
	r.put(func(tx *store.Tx) error {
		_, _, err := tx.Book(sku)
		return errors.Join(err, tx.PutBook(core.Book{Key: sku}.Stamp("publish")))
	})
	r.cell("cell-1", 7, func(c *core.Cell) { c.ProofID = "cell-1/4" }) // restored from 6, and says 4
	for version, age := range map[int64]time.Duration{2: 20 * day, 4: 18 * day, 6: 16 * day} {
		r.proof("cell-1", version, age, 0)
	}
	r.cell("cell-2", 7, nil)
	r.proof("cell-2", 2, 20*day, 5) // sealed and booked back
	r.proof("cell-2", 4, 18*day, 5) // sealed, and never booked back
	r.proof("cell-2", 6, 16*day, 5)
	seal := reclaim.SealID("cell-2", 2, sku)
	r.record(seal, core.Adjustment{ID: seal, Key: sku, Cell: "cell-2", Kind: core.KindSeal, Units: quantity.Must(5), State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 2}})
	r.cell("cell-3", 7, nil)
	r.proof("cell-3", 2, 20*day, 0)
	r.proof("cell-3", 4, 18*day, 0) // a grant under version 3 is open
	r.proof("cell-3", 6, 16*day, 0)
	r.record("open", core.Adjustment{ID: "open", Key: sku, Cell: "cell-3", Kind: core.KindGrant, Units: quantity.Must(1), State: core.StateBooked, Step: core.Step{FenceVersion: 3, Number: 1}})
	r.cell("cell-4", 7, nil)
	r.proof("cell-4", 2, 6*day, 0) // young
	r.proof("cell-4", 6, 5*day, 0)

	p := r.pruner()
	r.round(p)
	want := "[cell-1/4 cell-1/6 cell-2/4 cell-2/6 cell-3/4 cell-3/6 cell-4/2 cell-4/6]"
	if left := r.proofs(); fmt.Sprint(left) != want {
		t.Errorf("left %v, want %s", left, want)
	}
	if got := value(t, r.registry, "cellquota_records_removed_total", "proofs"); got != 3 {
		t.Errorf("%v proofs removed", got)
	}
	r.put(func(tx *store.Tx) error { // the account was taken: nobody's units any more
		b, _, err := tx.Book(sku)
		b.Settled = true
		return errors.Join(err, tx.PutBook(b.Stamp("settled")))
	})
	r.round(p)
	if left := r.proofs(); fmt.Sprint(left) != "[cell-1/4 cell-1/6 cell-2/6 cell-3/4 cell-3/6 cell-4/2 cell-4/6]" {
		t.Errorf("after settling: %v", left)
	}
}
