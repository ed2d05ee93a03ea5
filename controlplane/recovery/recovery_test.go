package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/recovery"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const wait = 20 * time.Second

var key = core.BookKey{Campaign: "c", SKU: "s"}

// world is a real etcd and two real shards, with a book of 1,000 units in etcd.
type world struct {
	t      *testing.T
	etcd   *testkit.EtcdCluster
	shards map[ids.CellID]*testkit.Database
	store  *store.Store
	view   *view.View
	driver *recovery.Driver
	orders *recovery.Orders
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, etcd: testkit.Etcd(t, 1), shards: map[ids.CellID]*testkit.Database{}}
	w.begin()
	pg := testkit.Postgres(t)
	cells := map[ids.CellID]core.Cell{}
	var shares []allocator.Share
	for i := range 2 {
		id := ids.CellID(fmt.Sprintf("cell-%d", i+1))
		w.shards[id] = pg.Database(t, testkit.Template{Name: "shard", Setup: func(ctx context.Context, dsn string) error {
			if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
				return err
			}
			return migrate.Up(ctx, dsn)
		}})
		w.install(id)
		cells[id] = core.Cell{State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a", Spec: core.CellSpec{
			ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
			Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1}, Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "c"},
		}}
		shares = append(shares, allocator.Share{Cell: string(id)})
	}
	plan, err := allocator.Split(allocator.Request{Limit: quantity.Must(1_000), Reserve: quantity.Must(400), Policy: allocator.Equal, Cells: shares})
	if err != nil {
		t.Fatal(err)
	}
	book, steps, err := core.NewBook(key, plan, cells)
	if err != nil {
		t.Fatal(err)
	}
	record := core.Record{ID: "publish", Key: key, Actor: "me", BookVersion: 1}
	for i, g := range plan.Grants {
		id := ids.CellID(g.Cell)
		record.Adjustments = append(record.Adjustments, core.Adjustment{ID: "g0-" + g.Cell, Key: key, Cell: id, Kind: core.KindGrant, Units: g.Units, State: core.StateDone, Outcome: core.OutcomeApplied, Step: steps[i]})
		w.apply(id, "g0-"+g.Cell, 1, g.Units.Int64(), "publish")
	}
	w.update(func(tx *store.Tx) error {
		for id, c := range cells {
			if _, _, err := tx.Cell(id); err != nil {
				return err
			}
			if err := tx.PutCell(c); err != nil {
				return err
			}
		}
		_, _, e1 := tx.Book(key)
		_, _, e2 := tx.Record("publish")
		stock, _, e3 := tx.Stock("s")
		stock, _, e4 := stock.Take("s", "c", quantity.Must(1_200), quantity.Must(1_000))
		return errors.Join(e1, e2, e3, e4, tx.PutBook(book.Stamp("publish")), tx.PutRecord(record), tx.PutStock(stock))
	})
	return w
}

// begin makes the replica's parts anew: it remembers nothing.
func (w *world) begin() {
	w.t.Helper()
	var err error
	if w.store, err = store.Open(store.Config{Endpoints: w.etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()}); err != nil {
		w.t.Fatal(err)
	}
	s := w.store
	w.t.Cleanup(func() { _ = s.Close() })
	if w.view, err = view.New(w.store, view.Deps{Clock: clock.System()}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	v := w.view
	go func() { defer close(done); _ = v.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	w.driver = &recovery.Driver{Store: w.store, View: w.view, Open: w.open, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
	w.orders = &recovery.Orders{Intent: &intent.Service{Store: w.store, View: w.view, Clock: clock.System()}, Driver: w.driver}
}

func (w *world) open(ctx context.Context, spec core.CellSpec) (recovery.Shard, error) {
	return fencer.Open(ctx, w.shards[spec.ID].As(migrate.RoleFencer), fencer.Options{})
}

func (w *world) install(id ids.CellID) {
	w.t.Helper()
	f, err := fencer.Open(testkit.Deadline(w.t), w.shards[id].As(migrate.RoleFencer), fencer.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close(context.Background()) }()
	if _, err := f.Install(testkit.Deadline(w.t), string(id), "a"); err != nil {
		w.t.Fatal(err)
	}
}

// apply is a grant as the shard's transaction commits it.
func (w *world) apply(id ids.CellID, adjustment string, number, units int64, record string) {
	w.t.Helper()
	conn := w.shards[id].Conn(w.t)
	for _, sql := range []string{
		"INSERT INTO cellquota.stock (campaign_id, sku_id, adjustment_version, updated_at) VALUES ('c', 's', 1, now()) ON CONFLICT DO NOTHING",
		fmt.Sprintf("UPDATE cellquota.stock SET granted = granted + %d, available = available + %d, version = version + 1, last_number = %d, last_adjustment_id = '%s', book_record_id = '%s'", units, units, number, adjustment, record),
		fmt.Sprintf("INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at) VALUES ('%s', 'c', 's', 1, %d, 'GRANT', %d, %d, 'APPLIED', now())", adjustment, number, units, units),
	} {
		if _, err := conn.Exec(testkit.Deadline(w.t), sql); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) update(middle func(tx *store.Tx) error) {
	w.t.Helper()
	if _, err := w.store.Update(testkit.Deadline(w.t), "seed", middle); err != nil {
		w.t.Fatal(err)
	}
}

// grant books units for a cell, as a top-up by hand does.
func (w *world) grant(id string, cell ids.CellID, units int64) error {
	_, err := w.store.Move(testkit.Deadline(w.t), store.Move{
		RecordID: id, Parameters: id, Key: key, Actor: "me", Method: "test",
		Edit: func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			next, step, err := b.Grant(cells[cell], quantity.Must(units))
			return next, []core.Adjustment{{ID: id, Key: key, Cell: cell, Kind: core.KindGrant, Units: quantity.Must(units), State: core.StateBooked, Step: step}}, err
		},
	})
	return err
}

// lead takes the lead under a new term, the leader before having died.
func (w *world) lead() core.Leader {
	w.t.Helper()
	client := w.etcd.Client(w.t)
	var leader core.Leader
	testkit.Eventually(w.t, wait, func() error { // an etcd that was just started may not answer the first calls
		ctx := testkit.Deadline(w.t)
		if _, err := client.Delete(ctx, "/cellquota/leader"); err != nil {
			return err
		}
		lease, err := w.store.GrantLease(ctx, time.Minute)
		if err != nil {
			return err
		}
		leader, err = w.store.TakeLead(ctx, lease, "here", ids.NewOperationID())
		return err
	})
	return leader
}

// backup copies etcd's data and gives what puts it back.
func (w *world) backup() (restore func()) {
	w.t.Helper()
	kept := filepath.Join(w.t.TempDir(), "backup")
	w.etcd.Stop(w.t, 0)
	if err := os.CopyFS(kept, os.DirFS(w.etcd.DataDir(0))); err != nil {
		w.t.Fatal(err)
	}
	w.etcd.Start(w.t, 0)
	return func() {
		w.t.Helper()
		w.etcd.Stop(w.t, 0)
		if err := errors.Join(os.RemoveAll(w.etcd.DataDir(0)), os.CopyFS(w.etcd.DataDir(0), os.DirFS(kept))); err != nil {
			w.t.Fatal(err)
		}
		w.etcd.Start(w.t, 0)
	}
}

// witness compares one shard as a new leader does.
func (w *world) witness(leader core.Leader, cell ids.CellID) error {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	head, err := w.store.Head(ctx)
	if err != nil {
		return err
	}
	s, err := w.view.WaitFor(ctx, head)
	if err != nil {
		return err
	}
	c, _ := s.Cell(cell)
	facts, err := recovery.Witness{Open: w.open}.Witness(ctx, c.Spec, leader.Term)
	if err != nil {
		return err
	}
	return planner.Compare(facts, s)
}

// A backup of etcd is restored, and a replica that remembers nothing leads. What
// was granted after the backup is in a shard and in the reserve too; it is found
// before a unit is granted, the books are taken from the shards, and grants go on
// from their numbers.
func TestBooksAreTakenFromTheShards(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.lead() // terms 1 to 3, of which the backup has the first three
	}
	restore := w.backup()
	old := w.lead()
	if err := w.witness(old, "cell-1"); err != nil {
		t.Fatal(err)
	}
	if err := w.grant("a1", "cell-1", 350); err != nil {
		t.Fatal(err)
	}
	w.apply("cell-1", "a1", 2, 350, "a1")
	restore()
	w.begin()
	leader := w.lead()
	if leader.Term.Count != old.Term.Count || leader.Term.ID == old.Term.ID {
		t.Fatalf("terms %v and %v: the restored etcd gives the count a second time", old.Term, leader.Term)
	}
	// Two leaders of one count: the shard refuses the second, by its id.
	if err := w.witness(leader, "cell-1"); !errors.Is(err, planner.ErrTermAhead) {
		t.Fatalf("%v, want ErrTermAhead", err)
	}
	leader = w.lead() // a higher count gets through, and the facts show the loss
	err := w.witness(leader, "cell-1")
	if !errors.Is(err, core.ErrRestored) {
		t.Fatalf("%v, want ErrRestored", err)
	}
	if err := w.store.MarkRestored(testkit.Deadline(t), core.Restored{Why: err.Error(), Cell: "cell-1", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	if err := w.grant("a2", "cell-2", 400); !errors.Is(err, core.ErrRestored) { // units that cell-1 has
		t.Fatalf("%v, want ErrRestored", err)
	}
	w.dryRun()
	w.recover("op-1", 600, func(op core.Operation) error { // below the 950 that are held
		if op.State != core.OperationFailed || !strings.Contains(op.Detail, "floor=950") {
			return fmt.Errorf("operation is %s: %s", op.State, op.Detail)
		}
		return nil
	})
	w.recover("op-2", 1_000, func(op core.Operation) error {
		if op.State != core.OperationDone {
			return fmt.Errorf("operation is %s: %s", op.State, op.Detail)
		}
		return nil
	})
	book, err := w.store.Book(testkit.Deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := book.Allocation("cell-1")
	two, _ := book.Allocation("cell-2")
	if one.Granted.Int64() != 650 || one.LastNumber != 2 || two.Granted.Int64() != 300 || book.Reserve.Int64() != 50 || book.SaleLimit.Int64() != 1_000 {
		t.Fatalf("book %+v", book)
	}
	if err := w.witness(w.lead(), "cell-1"); err != nil {
		t.Fatalf("after recovery: %v", err)
	}
	if err := w.grant("a1", "cell-1", 350); !errors.Is(err, core.ErrIDReused) {
		t.Fatalf("the lost grant under its id again: %v, want ErrIDReused", err)
	}
	if err := w.grant("a3", "cell-2", 51); !errors.Is(err, core.ErrReserveShort) {
		t.Fatalf("%v, want ErrReserveShort", err)
	}
	if err := w.grant("a4", "cell-1", 50); err != nil {
		t.Fatal(err)
	}
	if r, err := w.store.Record(testkit.Deadline(t), "a4"); err != nil || r.Adjustments[0].Number != 3 {
		t.Fatalf("a4 %+v, %v: want number 3", r, err)
	}
}

func (w *world) dryRun() {
	w.t.Helper()
	books, cells, err := w.orders.Preview(testkit.Deadline(w.t), nil)
	if err != nil || len(books) != 1 || len(cells) != 2 || books[0].Floor != 950 || books[0].BlockedBy == "" || cells[0].BlockedBy != "" {
		w.t.Fatalf("dry run: %+v, %+v, %v", books, cells, err)
	}
}

// recover begins a recovery, and drives it under as many leaders as it takes.
func (w *world) recover(id string, limit int64, ended func(core.Operation) error) {
	w.t.Helper()
	order := recovery.Order{OperationID: id, Reason: "drill", Limits: []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(limit)}}}
	op, err := w.orders.Recover(testkit.Deadline(w.t), intent.Caller{Name: "me", Method: "test", Issuers: []string{"root"}}, order)
	if err != nil || !op.NeedsApproval {
		w.t.Fatalf("%+v, %v: want an operation that waits for a second person", op, err)
	}
	if a, err := w.store.Approval(testkit.Deadline(w.t), id); err != nil || !slices.Equal(a.RequesterIssuers, []string{"root"}) {
		w.t.Fatalf("%+v, %v: want who minted the requester's token", a, err)
	}
	leader := w.lead()
	testkit.Eventually(w.t, wait, func() error {
		ctx := testkit.Deadline(w.t)
		op, err := w.store.Operation(ctx, id)
		if err != nil {
			return err
		}
		if op.State.Terminal() {
			return ended(op)
		}
		if err := w.driver.Step(ctx, leader, op); err != nil {
			return err
		}
		if w.view.Snapshot().Term().Count > leader.Term.Count {
			leader = w.lead() // as the planner does
		}
		return fmt.Errorf("operation is at %s: %s", op.Step, op.Detail)
	})
}
