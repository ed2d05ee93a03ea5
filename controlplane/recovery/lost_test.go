package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/recovery"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// done is what a recovery has to come to.
func done(op core.Operation) error {
	if op.State != core.OperationDone {
		return fmt.Errorf("operation is %s: %s", op.State, op.Detail)
	}
	return nil
}

// Two campaigns sell one SKU, and the confirmed limits are others than the backup's.
// They are set at once, whichever key comes first; what the warehouse does not have is
// refused when it is ordered, with the numbers, and wedges nothing.
func TestLimitsOfOneSKUAreSetAtOnce(t *testing.T) {
	w := newWorld(t)
	other := core.BookKey{Campaign: "d", SKU: "s"}
	w.update(func(tx *store.Tx) error { // 1,000 of c and 200 of d are the 1,200 that there are
		d := campaign(core.ReclaimManual)
		d.Spec.ID = "d"
		_, _, e1 := tx.Campaign("d")
		_, _, e2 := tx.Book(other)
		stock, _, e3 := tx.Stock("s")
		stock, _, e4 := stock.Take("s", "d", quantity.Must(1_200), quantity.Must(200))
		book := core.Book{Key: other, SaleLimit: quantity.Must(200), Reserve: quantity.Must(200)}
		_, _, e5 := tx.Record("publish-d")
		return errors.Join(e1, e2, e3, e4, e5, tx.PutCampaign(d), tx.PutStock(stock), tx.PutBook(book.Stamp("publish-d")), tx.PutRecord(core.Record{ID: "publish-d", Key: other, Actor: "me", BookVersion: 1}))
	})
	w.marked()
	limits := func(c, d int64) []core.ConfirmedLimit {
		return []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(c)}, {Key: other, SaleLimit: quantity.Must(d)}}
	}
	order := recovery.Order{OperationID: "much", Reason: "drill", Limits: limits(1_100, 101)}
	_, err := w.orders.Recover(testkit.Deadline(t), sre, order)
	if !errors.Is(err, core.ErrStockShort) || !strings.Contains(err.Error(), "physical_stock=1200") || !strings.Contains(err.Error(), "limits=1201") {
		t.Fatalf("%v, want ErrStockShort with the stock and the sum", err)
	}
	if plans, _, err := w.orders.Preview(testkit.Deadline(t), order.Limits); err != nil || len(plans) != 2 || !strings.Contains(plans[0].BlockedBy, "1201") || !strings.Contains(plans[1].BlockedBy, "1201") {
		t.Fatalf("preview %+v, %v", plans, err)
	}
	w.recoverTo("fits", limits(1_100, 100), done) // c/s is before d/s, and grows before that shrinks
	w.lead()
	s := w.now()
	stock, _ := s.Stock("s")
	one, _ := s.Book(key)
	two, _ := s.Book(other)
	if stock.Units.Int64() != 1_200 || stock.Limits["c"].Int64() != 1_100 || stock.Limits["d"].Int64() != 100 || one.SaleLimit.Int64() != 1_100 || two.SaleLimit.Int64() != 100 {
		t.Errorf("stock %+v, books %+v, %+v", stock, one, two)
	}
}

// tell gives a shard the rules of the campaign, as of a version.
func (w *world) tell(id ids.CellID, version int64, cells ...ids.CellID) {
	w.t.Helper()
	c := campaign(w.policy)
	c.Version, c.Spec.Cells = version, cells
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-1", Weight: 1}, {Cell: "cell-2", Weight: 1}}, allocator.Buckets)
	if err != nil {
		w.t.Fatal(err)
	}
	route := core.Route{Campaign: "c", Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}
	w.update(func(tx *store.Tx) error {
		_, _, err := tx.Route("c")
		return errors.Join(err, tx.PutRoute(route))
	})
	message, err := proto.Marshal(planner.Rules(c, route, id))
	if err != nil {
		w.t.Fatal(err)
	}
	w.sql(id, "INSERT INTO cellquota.campaigns (campaign_id, version, rules, state, open_at, close_at, purchase_scope, reservation_ttl, updated_at) VALUES ('c', $1, $2, $3, now(), now() + interval '1 hour', 'CAMPAIGN', interval '1 minute', now())", version, message, "PUBLISHED")
}

func (w *world) sql(id ids.CellID, sql string, args ...any) {
	w.t.Helper()
	if _, err := w.shards[id].Conn(w.t).Exec(testkit.Deadline(w.t), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) as(id ids.CellID, run func(context.Context, *fencer.Fencer) error) {
	w.t.Helper()
	f, err := fencer.Open(testkit.Deadline(w.t), w.shards[id].As(migrate.RoleFencer), fencer.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close(context.Background()) }()
	if err := run(testkit.Deadline(w.t), f); err != nil {
		w.t.Fatal(err)
	}
}

// provision is what etcd has of a cell whose provisioning has begun.
func (w *world) provision(id ids.CellID) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		one, _, e1 := tx.Cell("cell-1")
		_, _, e2 := tx.Cell(id)
		one.Spec.ID, one.State, one.Version, one.FenceVersion = id, core.CellProvisioned, 1, 1
		return errors.Join(e1, e2, tx.PutCell(one))
	})
}

// A cell that was provisioned and granted units after the backup is unknown to etcd.
// What it holds is in nobody's figures, so the recovery waits for it, by name, until it
// is provisioned again; one that is only PROVISIONED in the backup is read too. A cell
// that never was installed holds nothing.
func TestACellThatTheBackupDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-3"], w.shards["cell-4"] = w.database(), w.database()
	w.install("cell-3")
	w.as("cell-3", func(ctx context.Context, f *fencer.Fencer) error {
		_, err := f.Fence(ctx, "cell-3", 2, "drill")
		return errors.Join(err, f.Restore(ctx, "cell-3", 3, "a", "drill"), f.Activate(ctx, "cell-3", 3, "drill"))
	})
	w.applyAt("cell-3", 3, "a3", 1, 250, "a3")
	w.tell("cell-1", 7, "cell-1", "cell-2", "cell-3")
	w.lead()
	if err := w.store.MarkRestored(testkit.Deadline(t), core.Restored{Why: "a drill", Cell: "cell-4", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	_, cells, err := w.orders.Preview(testkit.Deadline(t), nil)
	if err != nil || len(cells) != 4 || cells[2].Stored.Spec.ID != "cell-3" || cells[3].Stored.Spec.ID != "cell-4" || cells[2].BlockedBy == "" {
		t.Fatalf("preview %+v, %v: want what is missing named", cells, err)
	}
	limits := []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(1_000)}}
	if _, err := w.orders.Recover(testkit.Deadline(t), sre, recovery.Order{OperationID: "op", Reason: "drill", Limits: limits}); err != nil {
		t.Fatal(err)
	}
	w.waits("op", "cell-3, cell-4")
	w.provision("cell-4")
	w.waits("op", "know and that may hold units: cell-3;")
	w.provision("cell-3")
	w.driveTo("op", done)
	w.lead()
	s := w.now()
	book, _ := s.Book(key)
	three, _ := book.Allocation("cell-3")
	cell, _ := s.Cell("cell-3")
	never, _ := s.Cell("cell-4")
	if three.Granted.Int64() != 250 || three.FenceVersion != 3 || book.Reserve.Int64() != 150 || cell.State != core.CellActive || cell.FenceVersion != 3 || never.State != core.CellProvisioned {
		t.Errorf("book %+v, cells %+v, %+v", book, cell, never)
	}
}

// waits steps until the operation waits for something.
func (w *world) waits(id, text string) {
	w.t.Helper()
	leader := w.present()
	testkit.Eventually(w.t, wait, func() error {
		op, err := w.store.Operation(testkit.Deadline(w.t), id)
		if err != nil {
			return err
		}
		if strings.Contains(op.Detail, text) && !op.State.Terminal() {
			return nil
		}
		if err := w.driver.Step(testkit.Deadline(w.t), leader, op); err != nil {
			return err
		}
		leader = w.present()
		return fmt.Errorf("operation is %s at %s: %s", op.State, op.Step, op.Detail)
	})
}

// The cell was paused after the backup. It stays paused, and its record is above the
// version that its shard was told: the next word reaches it.
func TestAPauseThatWasLost(t *testing.T) {
	w := newWorld(t)
	w.sql("cell-1", "SELECT cellquota.set_cell_switch(true, 7, 'smoke')")
	w.marked()
	w.recoverTo("op", []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(1_000)}}, done)
	cell := w.cell()
	if !cell.Paused || cell.PauseReason != "smoke" || cell.Version <= 7 {
		t.Fatalf("cell %+v: want it paused, at a version above 7", cell)
	}
	next, changed, err := cell.Resume()
	if err != nil || !changed {
		t.Fatal(err)
	}
	var stands bool
	if err := w.shards["cell-1"].Conn(t).QueryRow(testkit.Deadline(t), "SELECT cellquota.set_cell_switch(false, $1, '')", next.Version).Scan(&stands); err != nil || !stands {
		t.Errorf("a resume under version %d: taken %v, %v", next.Version, stands, err)
	}
}

// What was under way in the backup was perhaps carried out since. It is not carried out
// again: moves end, an approval that is asked for is taken back, and one that was given
// counts no more. A fence is finished, since its shard says how far it is. Tokens that
// were perhaps revoked since are revoked.
func TestWhatWasUnderWayIsNotDoneTwice(t *testing.T) {
	w := newWorld(t)
	at := time.Now().UTC()
	op := func(id, kind, subject string) core.Operation {
		return core.Operation{ID: id, Kind: kind, Subject: subject, State: core.OperationPending, Step: "begin", Actor: "ann", StartedAt: at, Parameters: "p"}
	}
	transfer := op("transfer", core.OperationTransfer, "c")
	transfer.Moves = []core.RebalanceMove{{SKU: "s", From: "cell-1", To: "cell-2", Units: quantity.Must(10)}}
	asked, question := op("asked", core.OperationCancel, "c").AskApproval(time.Hour, at)
	agreed, word := op("agreed", core.OperationCancel, "c").AskApproval(time.Hour, at)
	word, err := word.Approve("bob", "", at)
	if err != nil {
		t.Fatal(err)
	}
	begun := op("begun", core.OperationCancel, "c").Finished(core.StepStopSale, "", core.StepRefund, at)
	token := core.Token{ID: "t1", Name: "carl", Role: "sre", CreatedBy: "root", CreatedAt: at, ExpiresAt: at.Add(time.Hour), Digest: [32]byte{1}}
	w.update(func(tx *store.Tx) error {
		var errs []error
		for _, o := range []core.Operation{transfer, asked, agreed, begun} {
			_, _, err := tx.Operation(o.ID)
			errs = append(errs, err, tx.PutOperation(o))
		}
		for _, a := range []core.Approval{question, word} {
			_, _, err := tx.Approval(a.ID)
			errs = append(errs, err, tx.PutApproval(a))
		}
		for i := range 60 { // more than one transaction takes
			t := token
			t.ID = fmt.Sprint("t", i)
			_, _, err := tx.Token(t.ID)
			if i < 20 {
				errs = append(errs, err, tx.PutToken(t))
			}
		}
		return errors.Join(errs...)
	})
	for i := 20; i < 60; i += 20 {
		w.update(func(tx *store.Tx) error {
			var errs []error
			for j := range 20 {
				t := token
				t.ID = fmt.Sprint("t", i+j)
				_, _, err := tx.Token(t.ID)
				errs = append(errs, err, tx.PutToken(t))
			}
			return errors.Join(errs...)
		})
	}
	w.marked()
	w.recoverTo("op", []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(1_000)}}, done)
	s := w.now()
	for id, want := range map[string]core.OperationState{"transfer": core.OperationFailed, "asked": core.OperationAborted, "agreed": core.OperationAborted, "begun": core.OperationRunning} {
		got, _ := s.Operation(id)
		if got.State != want {
			t.Errorf("%s is %s: %s; want %s", id, got.State, got.Detail, want)
		}
	}
	if a, _ := s.Approval("asked"); a.State != core.ApprovalRejected || a.Approver != "recovery" {
		t.Errorf("what was asked: %+v", a)
	}
	service := &intent.Service{Store: w.store, View: w.view, Clock: nil}
	if _, err := service.Approve(testkit.Deadline(t), intent.Caller{Name: "eve"}, "asked", ""); !errors.Is(err, core.ErrApprovalState) {
		t.Errorf("approved after the recovery: %v, want ErrApprovalState", err)
	}
	for _, token := range s.Tokens() {
		if token.RevokedAt.IsZero() {
			t.Errorf("token %s of a past that was lost is valid", token.ID)
		}
	}
	if n := len(s.Tokens()); n != 60 {
		t.Errorf("%d tokens", n)
	}
}
