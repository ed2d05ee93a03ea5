package reclaim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// busy is what a cell looks like when it dies: 8 sold (3 paid), a return of 2 that
// the shard applied and nobody heard of, a grant of 4 that never arrived.
func busy(w *world) {
	w.t.Helper()
	w.shards["cell-1"].sell(1, "u", 8, 3)
	w.propose("cell-1", "ret", 2, true)
	w.grant("cell-1", "late", 4, false)
	w.dies("cell-1")
}

func (w *world) want(reserve int64, allocations ...int64) {
	w.t.Helper()
	b := w.book()
	if b.Reserve.Int64() != reserve {
		w.t.Errorf("reserve %s, want %d", b.Reserve, reserve)
	}
	for i, id := range cells() {
		if got := w.granted(id); got != allocations[i] {
			w.t.Errorf("%s holds %d, want %d", id, got, allocations[i])
		}
	}
}

// The main way: fence → proof → reclaim → top-up of the others → restore → active.
func TestFenceReclaimTopUpRestore(t *testing.T) {
	w := newWorldIn(t, testkit.Etcd(t, 1), true).publish()
	busy(w)
	w.want(6, 34, 30, 30)
	op := w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
	if c := w.cell("cell-1"); c.State != core.CellFencing || c.FenceVersion != 2 || op.FenceVersion != 2 {
		t.Fatalf("accepted: %+v", c)
	}
	op = w.done("f1")
	w.want(6, 8, 43, 43) // 20 sealed + 4 never arrived + 2 returned = 26, 13 each
	if got := w.shards["cell-1"].levels(); got != (levels{8, 0, 5, 3}) {
		t.Fatalf("shard %+v", got)
	}
	c := w.cell("cell-1")
	if c.State != core.CellFenced || !c.Reclaimed || c.ProofID != "cell-1/2" || c.OperationID != "" {
		t.Fatalf("%+v", c)
	}
	proof, err := w.store.Proof(t.Context(), "cell-1", 2)
	if err != nil || proof.FencedAt.IsZero() || proof.ShardIdentity == "" || len(proof.Adjustments) != 1 || len(proof.Settled) != 1 || proof.Settled[0].Count != 1 {
		t.Fatalf("proof %+v, %v", proof, err)
	}
	late, _ := w.store.Record(t.Context(), "late")
	ret, _ := w.store.Record(t.Context(), "ret")
	if late.Adjustments[0].State != core.StateVoided || ret.Adjustments[0].State != core.StateDone || ret.Adjustments[0].Outcome != core.OutcomeApplied {
		t.Fatalf("late %+v, ret %+v", late.Adjustments, ret.Adjustments)
	}
	if !strings.Contains(op.Steps[1].Detail, "26 units") || !strings.Contains(op.Steps[2].Detail, "26 units") {
		t.Fatalf("steps %+v", op.Steps)
	}
	topUp, err := w.store.Record(t.Context(), reclaim.TopUpRecordID("f1", 2, key))
	if err != nil || len(topUp.Adjustments) != 2 {
		t.Fatalf("%+v, %v", topUp, err)
	}
	w.apply(topUp) // the others can apply them: ids and numbers are right

	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "green", "back", false); err != nil {
		t.Fatal(err)
	}
	w.done("r1")
	c = w.cell("cell-1")
	if c.State != core.CellActive || c.FenceVersion != 3 || c.InstanceGroup != "green" || !c.Reclaimed {
		t.Fatalf("%+v", c)
	}
	w.grantsAgain(t)
	w.i1()
}

// grantsAgain: a restored cell gets new units by new grants, numbered from 1.
func (w *world) grantsAgain(t *testing.T) {
	t.Helper()
	w.grant("cell-1", "new", 2, false)
	r, err := w.store.Record(t.Context(), "new")
	if err != nil || r.Adjustments[0].FenceVersion != 3 || r.Adjustments[0].Number != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.shards["cell-1"].do("UPDATE cellquota.fence SET instance_group = 'blue'") // sale.sql writes as blue
	w.apply(r)
}

// A second fence of a restored cell: what the first one moved stays moved.
func TestASecondFenceOfARestoredCell(t *testing.T) {
	w := newWorld(t).publish()
	busy(w)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	w.done("f1")
	w.want(32, 8, 30, 30)
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
		t.Fatal(err)
	}
	w.done("r1")
	w.shards["cell-1"].do("SELECT sale.close(3, 's', 'u7')") // a release, available again
	w.shards["cell-1"].do("SELECT sale.pay(3, 's', 'u6')")
	w.grant("cell-1", "g3", 5, true)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f2", Reclaim: true, TopUp: true, Force: true})
	w.done("f2")
	w.want(27, 7, 33, 33) // 1 released + 5 granted came back, 3 each
	if c := w.cell("cell-1"); c.FenceVersion != 4 || c.ProofID != "cell-1/4" {
		t.Fatalf("%+v", c)
	}
	w.i1()
}

// An operation's record goes after operations.keep, its journal stays with the campaign: the same id given to a
// later fence gives away what that one brought back, not nothing, and is not refused for ever either.
func TestAFenceIDThatWasForgottenTopsUpAgain(t *testing.T) {
	w := newWorld(t).publish()
	busy(w)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
	w.done("f1")
	w.want(6, 8, 43, 43)
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
		t.Fatal(err)
	}
	w.done("r1")
	w.update(func(tx *store.Tx) error { // as hygiene does
		_, _, err := tx.Operation("f1")
		return errors.Join(err, tx.DropOperation("f1"))
	})
	w.grant("cell-1", "g3", 4, true)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true, Force: true})
	w.done("f1")
	w.want(2, 8, 45, 45)
	w.i1()
}

// K08: what comes back is limit − facts, not limit − last report; and while the
// shard is silent nothing comes back at all.
func TestK08ReclaimWaitsForTheShardAndReadsFacts(t *testing.T) {
	w := newWorld(t).publish()
	w.shards["cell-1"].sell(1, "u", 10, 0) // as far as anybody was told
	w.shards["cell-1"].sell(1, "v", 15, 0)
	w.dies("cell-1")
	w.shards["cell-1"].reachable(false)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	d := w.driver()
	for range 3 {
		op, err := w.store.Operation(t.Context(), "f1")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Step(testkit.Deadline(t), w.leader, op); err != nil {
			t.Fatal(err)
		}
	}
	op, _ := w.store.Operation(t.Context(), "f1")
	if op.State != core.OperationRunning || op.Step != "FENCING" || !strings.Contains(op.Detail, "cannot be reached") {
		t.Fatalf("%+v", op)
	}
	if c := w.cell("cell-1"); c.State != core.CellFencing {
		t.Fatalf("%+v", c)
	}
	w.want(10, 30, 30, 30)
	if _, err := w.orders.PreviewFence(t.Context(), "cell-1"); err == nil {
		t.Fatal("a preview of a silent shard")
	}
	w.shards["cell-1"].reachable(true)
	op = w.done("f1")
	w.want(15, 25, 30, 30)
	if op.Detail != "" {
		t.Fatalf("%q is left in the detail", op.Detail)
	}
}

// K31: fat fingers.
func TestK31FatFingers(t *testing.T) {
	w := newWorldIn(t, testkit.Etcd(t, 1), true).publish()
	ctx := testkit.Deadline(t)
	try := func(f reclaim.FenceOrder) error {
		f.Reason = "oops"
		_, err := w.orders.Fence(ctx, who, f, false)
		return err
	}
	for _, c := range []struct {
		name string
		f    reclaim.FenceOrder
		want error
	}{
		{"unknown cell", reclaim.FenceOrder{Cell: "cell-9", OperationID: "x", Force: true}, core.ErrUnknownCell},
		{"healthy cell", reclaim.FenceOrder{Cell: "cell-1", OperationID: "x"}, fencing.ErrHealthy},
		{"stale version", reclaim.FenceOrder{Cell: "cell-1", OperationID: "x", Force: true, ExpectedVersion: 7}, core.ErrVersion},
	} {
		if err := try(c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if c := w.cell("cell-1"); c.Version != 1 || c.OperationID != "" {
		t.Fatalf("a refused fence left %+v", c)
	}
	preview, err := w.orders.PreviewFence(ctx, "cell-1")
	if err != nil || len(preview) != 1 || preview[0].Units.Int64() != 30 {
		t.Fatalf("%+v, %v", preview, err)
	}
	if got := w.shards["cell-1"].levels(); got.available != 30 {
		t.Fatalf("a preview sealed: %+v", got)
	}
	if _, err := w.orders.Fence(ctx, who, reclaim.FenceOrder{Cell: "cell-1", OperationID: "dry", Force: true, Reason: "r"}, true); err != nil || w.cell("cell-1").Version != 1 {
		t.Fatalf("validate only: %v", err)
	}
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Force: true, ExpectedVersion: 1})
	again := w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Force: true, ExpectedVersion: 1}) // twice
	if again.FenceVersion != 2 || w.cell("cell-1").FenceVersion != 2 {
		t.Fatalf("%+v", again)
	}
	if err := try(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Force: true, Reclaim: true}); !errors.Is(err, core.ErrIDReused) {
		t.Errorf("same id, other parameters: %v", err)
	}
	if err := try(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f2", Force: true}); !errors.Is(err, core.ErrCellState) {
		t.Errorf("another operation has the cell: %v", err)
	}
	w.done("f1")
	w.want(10, 30, 30, 30) // fenced, and nothing was reclaimed
	w.fence(reclaim.FenceOrder{Cell: "cell-2", OperationID: "f3", Force: true})
	w.done("f3")
	if err := try(reclaim.FenceOrder{Cell: "cell-3", OperationID: "f4", Force: true}); !errors.Is(err, fencing.ErrLastLiveCell) {
		t.Errorf("the last live cell: %v", err)
	}
}

func TestReclaimAndRestoreNeedAFencedCell(t *testing.T) {
	w := newWorld(t).publish()
	ctx := testkit.Deadline(t)
	if _, err := w.orders.Reclaim(ctx, who, "cell-1", "x", false, "r"); !errors.Is(err, core.ErrCellState) {
		t.Fatalf("%v", err)
	}
	if _, err := w.orders.Restore(ctx, who, "cell-1", "x", "", "r", false); !errors.Is(err, fencing.ErrNotFenced) {
		t.Fatalf("%v", err)
	}
	busy(w)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1"})
	w.done("f1")
	preview, err := w.orders.PreviewReclaim(ctx, "cell-1")
	if err != nil || len(preview) != 1 || preview[0].Units.Int64() != 26 {
		t.Fatalf("%+v, %v", preview, err)
	}
	w.want(6, 34, 30, 30)
	if _, err := w.orders.Reclaim(ctx, who, "cell-1", "rec", true, "r"); err != nil {
		t.Fatal(err)
	}
	w.done("rec")
	w.want(6, 8, 43, 43)
	if preview, err = w.orders.PreviewReclaim(ctx, "cell-1"); err != nil || len(preview) != 0 {
		t.Fatalf("%+v, %v", preview, err)
	}
	// Reclaimed already: only the wish to top up is left, and it was fulfilled under
	// another operation; the reserve says how far.
	if _, err := w.orders.Reclaim(ctx, who, "cell-1", "rec2", false, "r"); err != nil {
		t.Fatal(err)
	}
	w.done("rec2")
	w.want(6, 8, 43, 43)
}

// A restore books what the fence proved before it gives the shard back.
func TestRestoreReclaimsFirst(t *testing.T) {
	w := newWorld(t).publish()
	busy(w)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1"})
	w.done("f1")
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
		t.Fatal(err)
	}
	w.done("r1")
	w.want(32, 8, 30, 30)
	if c := w.cell("cell-1"); c.State != core.CellActive || c.FenceVersion != 3 || !c.Reclaimed {
		t.Fatalf("%+v", c)
	}
}

// Numbers that do not come out: nothing of that SKU moves, the operation says
// which, and the cell is granted nothing until somebody has explained them.
func TestAProofThatDoesNotFitStopsWithTheNumbers(t *testing.T) {
	w := newWorld(t).publish()
	w.shards["cell-1"].sell(1, "u", 8, 3)
	w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESTOCK', 'ghost', 3, 0, 0)") // 3 units that no book ever granted
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
	op := w.finish(w.driver(), "f1")
	if op.State != core.OperationFailed || !strings.Contains(op.Detail, "allocation 30 becomes 5") || !strings.Contains(op.Detail, "holds 8") {
		t.Fatalf("%s: %s", op.State, op.Detail)
	}
	w.want(10, 30, 30, 30)
	if c := w.cell("cell-1"); c.State != core.CellFenced || c.Reclaimed || c.OperationID != "" {
		t.Fatalf("%+v", c)
	}
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
		t.Fatal(err)
	}
	if op := w.finish(w.driver(), "r1"); op.State != core.OperationFailed || w.cell("cell-1").State != core.CellFenced {
		t.Fatalf("a restore over unexplained units: %+v", op)
	}
}

// `reclaim: NEVER`: sealed units stay in the allocation, frozen, through a second
// fence too; what never arrived is voided all the same.
func TestReclaimNeverFreezesSealedUnits(t *testing.T) {
	w := newWorld(t)
	w.policy = core.ReclaimNever
	w.publish()
	busy(w)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	if op := w.done("f1"); !strings.Contains(op.Steps[1].Detail, "c/s keeps 20 frozen (its campaign says reclaim: NEVER)") {
		t.Errorf("what stays is not named: %+v", op.Steps)
	}
	w.want(12, 28, 30, 30) // 4 voided and 2 returned; 20 sealed stay beside the 8 sold
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
		t.Fatal(err)
	}
	w.done("r1")
	w.grant("cell-1", "g3", 5, true)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f2", Reclaim: true})
	w.done("f2")
	w.want(7, 33, 30, 30) // 8 sold + 20 and 5 frozen
}

// `reclaim: NEVER` is of one campaign: the SKUs of others are reclaimed and topped up by
// the same operation.
func TestReclaimNeverLeavesOthersAlone(t *testing.T) {
	w := newWorld(t).publish()
	never := core.BookKey{Campaign: "n", SKU: "kept"}
	w.shards["cell-1"].do(`INSERT INTO cellquota.stock (campaign_id, sku_id, granted, available, confirmed, version, adjustment_version, last_number, last_adjustment_id, book_record_id, updated_at)
		VALUES ('n', 'kept', 10, 7, 3, 1, 1, 1, 'n1', 'n', now())`)
	w.shards["cell-1"].do(`INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
		VALUES ('n1', 'n', 'kept', 1, 1, 'GRANT', 10, 10, 'APPLIED', now())`)
	campaign := w.campaign()
	campaign.Spec.ID, campaign.Spec.Reclaim = "n", core.ReclaimNever
	q := quantity.Must
	book := core.Book{Key: never, SaleLimit: q(10), LimitTarget: q(10), Allocations: []core.Allocation{{
		Cell: "cell-1", Granted: q(10), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive, FirstGrant: q(10),
	}}}
	record := core.Record{ID: "n", Key: never, Actor: "me", BookVersion: 1, Adjustments: []core.Adjustment{{
		ID: "n1", Key: never, Cell: "cell-1", Kind: core.KindGrant, Units: q(10), State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 1, Number: 1},
	}}}
	w.update(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(never)
		_, _, e2 := tx.Record("n")
		_, _, e3 := tx.Campaign("n")
		return errors.Join(e1, e2, e3, tx.PutBook(book.Stamp("n")), tx.PutRecord(record), tx.PutCampaign(campaign))
	})
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
	op := w.done("f1")
	w.want(10, 0, 45, 45) // 30 went to the others
	kept, err := w.store.Book(testkit.Deadline(t), never)
	if a, _ := kept.Allocation("cell-1"); err != nil || a.Granted != q(10) || !kept.Reserve.IsZero() {
		t.Errorf("%+v, %v", kept, err)
	}
	if len(op.Steps) < 2 || op.Steps[1].Detail != "30 units are back in the reserve; n/kept keeps 7 frozen (its campaign says reclaim: NEVER)" {
		t.Errorf("%+v", op.Steps)
	}
}

// K01, the late grant: after the fence the shard refuses what was sent under the
// old version, and the voided units are counted once.
func TestK01ALateGrantIsRefusedAndCountedOnce(t *testing.T) {
	w := newWorld(t).publish()
	w.grant("cell-1", "late", 4, false)
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	w.done("f1")
	for _, when := range []string{"fenced", "restored"} {
		err := w.shards["cell-1"].late("late", 2)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "CQ001" {
			t.Fatalf("%s: the late grant: %v", when, err)
		}
		if when == "fenced" {
			w.want(40, 0, 30, 30)
			if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
				t.Fatal(err)
			}
			w.done("r1")
		}
	}
	w.want(40, 0, 30, 30)
	if got := w.shards["cell-1"].levels(); got != (levels{}) {
		t.Fatalf("shard %+v", got)
	}
	w.i1()
}

// late applies a grant of 4 under version 1, as the cell's role.
func (s *shard) late(id string, number int64) error {
	conn := s.db.ConnAs(s.t, migrate.RoleApp)
	if _, err := s.conn.Exec(s.t.Context(), "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sale TO cellquota_app"); err != nil {
		return err
	}
	_, err := conn.Exec(s.t.Context(), "SELECT sale.adjust(1, 's', $1, $2, 'GRANT', 4, $1)", id, number)
	return err
}

// A grant in flight at the fence, both orders: its transaction commits while the
// fencer waits, and is in the proof; or it hangs, its backend is ended, and it is
// voided.
func TestAGrantInFlightAtTheFence(t *testing.T) {
	for _, c := range []struct {
		name           string
		commits        bool
		reserve, holds int64
		state          core.JournalState
	}{
		{"it commits while the fencer waits", true, 40, 0, core.StateDone},
		{"it never commits", false, 40, 0, core.StateVoided},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t).publish()
			w.grant("cell-1", "late", 4, false)
			s := w.shards["cell-1"]
			s.do("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sale TO cellquota_app")
			tx, err := s.db.ConnAs(t, migrate.RoleApp).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "SELECT sale.adjust(1, 's', 'late', 2, 'GRANT', 4, 'late')"); err != nil {
				t.Fatal(err)
			}
			w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, Force: true})
			ended := make(chan core.Operation, 1)
			go func() { ended <- w.finish(w.driver(), "f1") }()
			s.fencerWaits()
			if c.commits {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatalf("a writer that was there first: %v", err)
				}
			}
			if op := <-ended; op.State != core.OperationDone {
				t.Fatalf("%+v", op)
			}
			if !c.commits {
				if err := tx.Commit(t.Context()); err == nil {
					t.Fatal("a writer committed behind the fence")
				}
			}
			w.want(c.reserve, c.holds, 30, 30)
			r, _ := w.store.Record(t.Context(), "late")
			if r.Adjustments[0].State != c.state {
				t.Fatalf("%+v", r.Adjustments)
			}
			w.i1()
		})
	}
}

func (s *shard) fencerWaits() {
	s.t.Helper()
	testkit.Eventually(s.t, wait, func() error {
		var n int
		if err := s.conn.QueryRow(s.t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the fencer does not wait yet")
		}
		return nil
	})
}

// A fence takes a cell out of a restore that does not get on.
func TestAFenceEndsARestoreUnderWay(t *testing.T) {
	w := newWorld(t).publish()
	busy(w)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	w.done("f1")
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
		t.Fatal(err)
	}
	slow := reclaim.New(reclaim.Config{RetryInterval: time.Millisecond, CloseGrace: time.Hour}, w.store, w.view, reclaim.Files{}, clock.System(), nil)
	op, _ := w.store.Operation(t.Context(), "r1")
	if err := slow.Step(testkit.Deadline(t), w.leader, op); err != nil {
		t.Fatal(err)
	}
	if op, _ = w.store.Operation(t.Context(), "r1"); op.Step != "SETTLE_ONLY" || !strings.Contains(op.Detail, "not yet") || w.cell("cell-1").State != core.CellRestoring {
		t.Fatalf("%+v", op)
	}
	w.shards["cell-1"].do("SELECT sale.pay(3, 's', 'u5')") // settle-only: payments go on
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f2", Reclaim: true})
	w.done("f2")
	if op := w.finish(slow, "r1"); op.State != core.OperationFailed || !strings.Contains(op.Detail, "has cell cell-1 now") {
		t.Fatalf("%+v", op)
	}
	w.want(32, 8, 30, 30)
	if c := w.cell("cell-1"); c.FenceVersion != 4 || c.State != core.CellFenced {
		t.Fatalf("%+v", c)
	}
}

// More open records than one transaction takes.
func TestManyOpenGrants(t *testing.T) {
	w := newWorld(t).publish()
	b := w.book()
	if b.Reserve.Int64() != 10 {
		t.Fatal(b.Reserve)
	}
	for i := range 60 { // 5 units go round: proposed returns are intents that take no unit
		w.propose("cell-1", fmt.Sprintf("ret-%02d", i), 1, i < 7)
	}
	w.grant("cell-1", "late", 4, false)
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	w.done("f1")
	w.want(40, 0, 30, 30)
	for _, r := range w.view.Snapshot().OpenRecords() {
		t.Errorf("%s is still open", r.ID)
	}
	w.i1()
}

// A deposed leader's driver changes nothing.
func TestADeposedLeaderDrivesNothing(t *testing.T) {
	w := newWorld(t).publish()
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	old := w.leader
	w.lead()
	op, _ := w.store.Operation(t.Context(), "f1")
	if err := w.driver().Step(testkit.Deadline(t), old, op); !errors.Is(err, core.ErrNotLeader) {
		t.Fatalf("%v", err)
	}
	if c := w.cell("cell-1"); c.State != core.CellFencing {
		t.Fatalf("%+v", c)
	}
	w.done("f1")
	// The old one again, now that the shard knows the new term.
	w.fence(reclaim.FenceOrder{Cell: "cell-2", OperationID: "f2", Force: true})
	op, _ = w.store.Operation(t.Context(), "f2")
	if err := w.driver().Step(testkit.Deadline(t), old, op); !errors.Is(err, core.ErrNotLeader) {
		t.Fatalf("%v", err)
	}
}
