package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const (
	wait  = 20 * time.Second
	grace = 200 * time.Millisecond
)

var (
	key = core.BookKey{Campaign: "c", SKU: "s"}
	who = intent.Caller{Name: "sre-1", Method: "test"}
)

// world is a sale in a real etcd: 100 units, 10 in the reserve, 30 in each of
// three cells that are alive. cell-1's shard is real; the others' are too where a
// test has them apply what they are granted (everywhere).
type world struct {
	t      testing.TB
	client *clientv3.Client
	prefix string
	store  *store.Store
	view   *view.View
	orders *reclaim.Orders
	people *intent.Service
	shards map[ids.CellID]*shard
	leader core.Leader
	lease  int64
	policy core.Reclaim
	// everywhere: every cell has a real shard.
	everywhere bool
	// share is what each cell is granted at publish.
	share int64
}

// shard is one cell's database.
type shard struct {
	t    testing.TB
	db   *testkit.Database
	conn *pgx.Conn
	file string // with the fencer's address
}

var etcds struct {
	sync.Mutex
	n int
}

func template() testkit.Template {
	return testkit.Template{Name: "sale", Setup: func(ctx context.Context, dsn string) error {
		if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
			return err
		}
		if err := migrate.Up(ctx, dsn); err != nil {
			return err
		}
		sale, err := os.ReadFile("../report/shards/testdata/sale.sql")
		if err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, string(sale))
		return err
	}}
}

func newWorld(t *testing.T) *world { return newWorldIn(t, testkit.Etcd(t, 1), false) }

// newWorldIn makes a world under a prefix of its own.
func newWorldIn(t testing.TB, etcd *testkit.EtcdCluster, everywhere bool) *world {
	t.Helper()
	etcds.Lock()
	etcds.n++
	w := &world{t: t, client: etcd.Client(t), prefix: fmt.Sprintf("/world-%d", etcds.n), shards: map[ids.CellID]*shard{}, policy: core.ReclaimManual, everywhere: everywhere, share: 30}
	etcds.Unlock()
	w.store = w.openStore(nil)
	for _, id := range cells() {
		w.shards[id] = w.newShard(id)
	}
	var err error
	if w.view, err = view.New(w.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.people = &intent.Service{Store: w.store, View: w.view, Clock: clock.System()}
	w.orders = &reclaim.Orders{Store: w.store, View: w.view, Shards: reclaim.Files{}, Intent: w.people}
	return w
}

func cells() []ids.CellID { return []ids.CellID{"cell-1", "cell-2", "cell-3"} }

func (w *world) openStore(kv func(clientv3.KV) clientv3.KV) *store.Store {
	w.t.Helper()
	s, err := store.Open(store.Config{Endpoints: w.client.Endpoints(), Prefix: w.prefix}, store.Deps{Clock: clock.System(), KV: kv})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *world) newShard(id ids.CellID) *shard {
	w.t.Helper()
	s := &shard{t: w.t, file: filepath.Join(w.t.TempDir(), "fencer")}
	if id != "cell-1" && !w.everywhere {
		return s // its file names nobody
	}
	s.db = testkit.Postgres(w.t).Database(w.t, template())
	s.conn = s.db.Conn(w.t)
	s.reachable(true)
	spec := w.spec(id, s.file)
	if v, err := (reclaim.Files{}).Install(testkit.Deadline(w.t), spec); err != nil || v != 1 {
		w.t.Fatalf("install: %d, %v", v, err)
	}
	return s
}

func (w *world) spec(id ids.CellID, file string) core.CellSpec {
	return core.CellSpec{
		ID: id, Region: "east", InstanceGroup: "blue", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
		Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: file},
	}
}

// reachable writes the address file: the shard's, or that of nobody.
func (s *shard) reachable(yes bool) {
	s.t.Helper()
	dsn := s.db.As(migrate.RoleFencer)
	if !yes {
		dsn = "postgres://cellquota_fencer@127.0.0.1:1/none"
	}
	if err := os.WriteFile(s.file, []byte(dsn+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// do runs one of the cell's writes, or any statement.
func (s *shard) do(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// sell sells n units to users of their own under a fence version; paid of them pay.
func (s *shard) sell(version int64, prefix string, n, paid int) {
	s.t.Helper()
	for i := range n {
		user := fmt.Sprintf("%s%d", prefix, i)
		s.do("SELECT sale.sell($1, 's', $2)", version, user)
		if i < paid {
			s.do("SELECT sale.pay($1, 's', $2)", version, user)
		}
	}
}

type levels struct{ granted, available, reserved, confirmed int }

func (s *shard) levels() (l levels) {
	s.t.Helper()
	err := s.conn.QueryRow(s.t.Context(), "SELECT granted, available, reserved, confirmed FROM cellquota.stock WHERE sku_id = 's'").
		Scan(&l.granted, &l.available, &l.reserved, &l.confirmed)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (w *world) update(middle func(tx *store.Tx) error) {
	w.t.Helper()
	if _, err := w.store.Update(testkit.Deadline(w.t), "test", middle); err != nil {
		w.t.Fatal(err)
	}
}

// publish writes what a publish leaves behind, applied in every shard.
func (w *world) publish() *world {
	w.t.Helper()
	records := map[ids.CellID]core.Cell{}
	var shares []allocator.Share
	var weights []allocator.CellWeight
	for _, id := range cells() {
		c := core.Cell{Spec: w.spec(id, w.shards[id].file), State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "blue"}
		records[id] = c
		shares, weights = append(shares, allocator.Share{Cell: string(id)}), append(weights, allocator.CellWeight{Cell: string(id), Weight: 1})
		w.update(func(tx *store.Tx) error { _, _, err := tx.Cell(id); return errors.Join(err, tx.PutCell(c)) })
	}
	q := quantity.Must
	plan, err := allocator.Split(allocator.Request{Limit: q(3*w.share + 10), Reserve: q(10), Policy: allocator.Equal, Cells: shares})
	if err != nil {
		w.t.Fatal(err)
	}
	book, steps, err := core.NewBook(key, plan, records)
	if err != nil {
		w.t.Fatal(err)
	}
	homes, err := allocator.DealBuckets(weights, allocator.Buckets)
	if err != nil {
		w.t.Fatal(err)
	}
	record := core.Record{ID: core.PublishRecordID(key), Key: key, Actor: "me", BookVersion: 1, At: time.Now()}
	for i, id := range cells() {
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: core.FirstGrantID(key, id), Key: key, Cell: id, Kind: core.KindGrant, Units: q(w.share), State: core.StateDone, Outcome: core.OutcomeApplied, Step: steps[i],
		})
		if w.shards[id].db == nil {
			continue
		}
		w.shards[id].do("SELECT sale.rules(1, 's')")
		w.shards[id].do("SELECT sale.adjust(1, 's', $1, 1, 'GRANT', $3, $2)", core.FirstGrantID(key, id), record.ID, w.share)
	}
	campaign := w.campaign()
	w.update(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(key)
		_, _, e2 := tx.Record(record.ID)
		_, _, e3 := tx.Campaign("c")
		_, _, e4 := tx.Route("c")
		return errors.Join(e1, e2, e3, e4, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record), tx.PutCampaign(campaign),
			tx.PutRoute(core.Route{Campaign: "c", Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))
	})
	w.lead()
	for _, id := range cells() {
		w.alive(id)
	}
	return w
}

func (w *world) campaign() core.Campaign {
	now, q := time.Now(), quantity.Must
	return core.Campaign{
		Spec: core.CampaignSpec{
			ID: "c", OpenAt: now.Add(-time.Minute), CloseAt: now.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: w.policy, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: cells(),
			SKUs: []core.SKUSpec{{
				ID: "s", PhysicalStock: q(3*w.share + 10), SaleLimit: q(3*w.share + 10), Inventory: core.InventoryCounter, Price: core.Money{Amount: "10", Currency: "CNY"}, Reserve: q(10),
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now,
	}
}

// lead takes the lead; the leader before this one has lost its key.
func (w *world) lead() core.Leader {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	if w.lease != 0 {
		if err := w.store.RevokeLease(ctx, w.lease); err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	if w.lease, err = w.store.GrantLease(ctx, time.Minute); err != nil {
		w.t.Fatal(err)
	}
	if w.leader, err = w.store.TakeLead(ctx, w.lease, "here:1", ids.NewOperationID()); err != nil {
		w.t.Fatal(err)
	}
	return w.leader
}

// alive registers a process of a cell and waits until the view shows it.
func (w *world) alive(id ids.CellID) int64 {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	lease, err := w.store.GrantLease(ctx, time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.Register(ctx, w.leader, core.Instance{Cell: id, ID: "p", Group: "blue", Lease: lease}, func(core.Cell) error { return nil }); err != nil {
		w.t.Fatal(err)
	}
	testkit.Eventually(w.t, wait, func() error {
		if len(w.view.Snapshot().Instances(id)) == 0 {
			return errors.New("not seen yet")
		}
		return nil
	})
	return lease
}

// dies ends the lease of a cell's process.
func (w *world) dies(id ids.CellID) {
	w.t.Helper()
	for _, i := range w.view.Snapshot().Instances(id) {
		if err := w.store.RevokeLease(testkit.Deadline(w.t), i.Lease); err != nil {
			w.t.Fatal(err)
		}
	}
	testkit.Eventually(w.t, wait, func() error {
		if len(w.view.Snapshot().Instances(id)) != 0 {
			return errors.New("still seen")
		}
		return nil
	})
}

// grant books a grant; apply tells whether the shard applies it.
func (w *world) grant(id ids.CellID, adjustment string, units int64, apply bool) {
	w.t.Helper()
	moved, err := w.store.Move(testkit.Deadline(w.t), store.Move{
		RecordID: adjustment, Key: key, Actor: "me", Edit: func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			next, step, err := b.Grant(cells[id], quantity.Must(units))
			return next, []core.Adjustment{{ID: adjustment, Key: key, Cell: id, Kind: core.KindGrant, Units: quantity.Must(units), State: core.StateBooked, Step: step}}, err
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if apply {
		w.apply(moved.Record)
	}
}

// propose writes the intent of a return; apply tells whether the shard applies it.
func (w *world) propose(id ids.CellID, adjustment string, units int64, apply bool) {
	w.t.Helper()
	moved, err := w.store.Move(testkit.Deadline(w.t), store.Move{
		RecordID: adjustment, Key: key, Actor: "me", Edit: func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			next, step, err := b.ProposeReturn(cells[id], quantity.Must(units))
			return next, []core.Adjustment{{ID: adjustment, Key: key, Cell: id, Kind: core.KindReturn, Units: quantity.Must(units), State: core.StateProposed, Step: step}}, err
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if apply {
		w.apply(moved.Record)
	}
}

// apply has the shards apply a record's adjustments; nobody tells the journal.
func (w *world) apply(r core.Record) {
	w.t.Helper()
	for _, a := range r.Adjustments {
		w.shards[a.Cell].do("SELECT sale.adjust($1, 's', $2, $3, $4, $5, $6)", a.FenceVersion, a.ID, a.Number, a.Kind.String(), a.Units.Int32(), r.ID)
	}
}

func (w *world) book() core.Book {
	w.t.Helper()
	b, err := w.store.Book(testkit.Deadline(w.t), key)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) granted(id ids.CellID) int64 {
	a, _ := w.book().Allocation(id)
	return a.Granted.Int64()
}

func (w *world) cell(id ids.CellID) core.Cell {
	w.t.Helper()
	c, err := w.store.Cell(testkit.Deadline(w.t), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) driver() *reclaim.Driver {
	return reclaim.New(reclaim.Config{RetryInterval: time.Millisecond, CloseGrace: grace}, w.store, w.view, reclaim.Files{LockTimeout: 300 * time.Millisecond}, clock.System(), nil)
}

// finish drives an operation until it has ended.
func (w *world) finish(d *reclaim.Driver, id string) core.Operation {
	w.t.Helper()
	var op core.Operation
	testkit.Eventually(w.t, wait, func() error {
		var err error
		if op, err = w.store.Operation(testkit.Deadline(w.t), id); err != nil || op.State.Terminal() {
			return err
		}
		if err := d.Step(testkit.Deadline(w.t), w.leader, op); err != nil {
			return err
		}
		return fmt.Errorf("operation %s is %s in %s: %s", id, op.State, op.Step, op.Detail)
	})
	return op
}

// done is finish, which must come out well.
func (w *world) done(id string) core.Operation {
	w.t.Helper()
	op := w.finish(w.driver(), id)
	if op.State != core.OperationDone {
		w.t.Fatalf("%s: %s: %s", id, op.State, op.Detail)
	}
	return op
}

func (w *world) fence(f reclaim.FenceOrder) core.Operation {
	w.t.Helper()
	if f.Reason == "" {
		f.Reason = "dead"
	}
	op, err := w.orders.Fence(testkit.Deadline(w.t), who, f, false)
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}

// i1 checks I1 at every revision that the book ever had.
func (w *world) i1() {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	at := w.prefix + "/books/" + key.String()
	for revision := w.book().ModRevision; ; {
		resp, err := w.client.Get(ctx, at, clientv3.WithRev(revision))
		if err != nil {
			w.t.Fatal(err)
		}
		if len(resp.Kvs) == 0 {
			return
		}
		b, err := store.DecodeBook(resp.Kvs[0].Value)
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			w.t.Fatalf("revision %d: %v", revision, err)
		}
		revision = resp.Kvs[0].ModRevision - 1
	}
}
