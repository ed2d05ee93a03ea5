package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
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
	prefix string
	policy core.Reclaim
	leader core.Leader
	etcd   *testkit.EtcdCluster
	shards map[ids.CellID]*testkit.Database
	store  *store.Store
	view   *view.View
	driver *recovery.Driver
	orders *recovery.Orders
	end    func() // of the replica's parts
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, testkit.Etcd(t, 1), "/cellquota", core.ReclaimManual)
}

// newWorldIn makes a world under a prefix of its own in an etcd.
func newWorldIn(t *testing.T, etcd *testkit.EtcdCluster, prefix string, policy core.Reclaim) *world {
	t.Helper()
	w := &world{t: t, prefix: prefix, policy: policy, etcd: etcd, shards: map[ids.CellID]*testkit.Database{}}
	w.begin()
	cells := map[ids.CellID]core.Cell{}
	var shares []allocator.Share
	for i := range 2 {
		id := ids.CellID(fmt.Sprintf("cell-%d", i+1))
		w.shards[id] = w.database()
		w.install(id)
		dsn := filepath.Join(t.TempDir(), "fencer")
		if err := os.WriteFile(dsn, []byte(w.shards[id].As(migrate.RoleFencer)), 0o600); err != nil {
			t.Fatal(err)
		}
		cells[id] = core.Cell{State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a", Spec: core.CellSpec{
			ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
			Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1}, Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: dsn},
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
		_, _, e5 := tx.Campaign("c")
		return errors.Join(e1, e2, e3, e4, e5, tx.PutCampaign(campaign(policy)), tx.PutBook(book.Stamp("publish")), tx.PutRecord(record), tx.PutStock(stock))
	})
	return w
}

// database is an empty shard.
func (w *world) database() *testkit.Database {
	w.t.Helper()
	return testkit.Postgres(w.t).Database(w.t, testkit.Template{Name: "shard", Setup: func(ctx context.Context, dsn string) error {
		if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
			return err
		}
		return migrate.Up(ctx, dsn)
	}})
}

// campaign is on sale in both cells.
func campaign(policy core.Reclaim) core.Campaign {
	now := time.Now()
	return core.Campaign{
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now,
		Spec: core.CampaignSpec{
			ID: "c", OpenAt: now, CloseAt: now.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeCampaign, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: policy, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second},
			Cells: []ids.CellID{"cell-1", "cell-2"},
			SKUs: []core.SKUSpec{{
				ID: "s", PhysicalStock: quantity.Must(1_200), SaleLimit: quantity.Must(1_000), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "EUR"},
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
	}
}

// begin makes the replica's parts anew: it remembers nothing.
func (w *world) begin() {
	w.t.Helper()
	if w.end != nil {
		w.end()
	}
	var err error
	if w.store, err = store.Open(store.Config{Endpoints: w.etcd.Endpoints(), Prefix: w.prefix}, store.Deps{Clock: clock.System()}); err != nil {
		w.t.Fatal(err)
	}
	s := w.store
	if w.view, err = view.New(w.store, view.Deps{Clock: clock.System()}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	v := w.view
	go func() { defer close(done); _ = v.Run(ctx) }()
	var once sync.Once
	w.end = func() { once.Do(func() { cancel(); <-done; _ = s.Close() }) }
	w.t.Cleanup(w.end)
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
	w.applyAt(id, 1, adjustment, number, units, record)
}

func (w *world) applyAt(id ids.CellID, version int64, adjustment string, number, units int64, record string) {
	w.t.Helper()
	conn := w.shards[id].Conn(w.t)
	for _, sql := range []string{
		fmt.Sprintf("INSERT INTO cellquota.stock (campaign_id, sku_id, adjustment_version, updated_at) VALUES ('c', 's', %d, now()) ON CONFLICT DO NOTHING", version),
		fmt.Sprintf("UPDATE cellquota.stock SET granted = granted + %d, available = available + %d, version = version + 1, last_number = %d, last_adjustment_id = '%s', book_record_id = '%s'", units, units, number, adjustment, record),
		fmt.Sprintf("INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at) VALUES ('%s', 'c', 's', %d, %d, 'GRANT', %d, %d, 'APPLIED', now())", adjustment, version, number, units, units),
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
		if _, err := client.Delete(ctx, w.prefix+"/leader"); err != nil {
			return err
		}
		lease, err := w.store.GrantLease(ctx, time.Minute)
		if err != nil {
			return err
		}
		leader, err = w.store.TakeLead(ctx, lease, "here", ids.NewOperationID())
		return err
	})
	w.leader = leader
	return leader
}

// present is the leader whose term every shard of ours would take.
func (w *world) present() core.Leader {
	w.t.Helper()
	if w.now().Term() != w.leader.Term {
		return w.lead()
	}
	return w.leader
}

// now is the view as etcd is.
func (w *world) now() view.Snapshot {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	head, err := w.store.Head(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := w.view.WaitFor(ctx, head)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// backup copies etcd's data and gives what puts it back. Both end the replica, whose
// watch would hold etcd's stop up for seconds, and begin a new one.
func (w *world) backup() (restore func()) {
	w.t.Helper()
	kept := filepath.Join(w.t.TempDir(), "backup")
	restart(w.t, w.etcd, func() error { return os.CopyFS(kept, os.DirFS(w.etcd.DataDir(0))) }, w)
	return func() {
		w.t.Helper()
		restart(w.t, w.etcd, func() error {
			return errors.Join(os.RemoveAll(w.etcd.DataDir(0)), os.CopyFS(w.etcd.DataDir(0), os.DirFS(kept)))
		}, w)
	}
}

func restart(t *testing.T, etcd *testkit.EtcdCluster, between func() error, worlds ...*world) {
	t.Helper()
	for _, w := range worlds {
		w.end()
	}
	etcd.Stop(t, 0)
	if err := between(); err != nil {
		t.Fatal(err)
	}
	etcd.Start(t, 0)
	for _, w := range worlds {
		w.begin()
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
