package settle_test

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

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/settle"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const wait = 20 * time.Second

var key = core.BookKey{Campaign: "c", SKU: "s"}

// shard is one cell's real PostgreSQL.
type shard struct {
	t    *testing.T
	db   *testkit.Database
	conn *pgx.Conn
	file string
}

func (s *shard) do(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func newShard(t *testing.T, id ids.CellID) *shard {
	t.Helper()
	db := testkit.Postgres(t).Database(t, testkit.Template{Name: "sale", Setup: func(ctx context.Context, dsn string) error {
		sale, err := os.ReadFile("../report/shards/testdata/sale.sql")
		if err != nil {
			return err
		}
		if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, string(sale))
		return err
	}})
	s := &shard{t: t, db: db, conn: db.Conn(t), file: filepath.Join(t.TempDir(), "reader")}
	s.reachable(true)
	f, err := fencer.Open(t.Context(), db.As(migrate.RoleFencer), fencer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close(context.WithoutCancel(t.Context())) })
	if _, err := f.Install(t.Context(), string(id), "blue"); err != nil {
		t.Fatal(err)
	}
	s.do("SELECT sale.rules(1, 's')")
	s.do("SELECT sale.adjust(1, 's', $1, 1, 'GRANT', 40, $2)", core.FirstGrantID(key, id), core.PublishRecordID(key))
	return s
}

// reachable writes the file that names the shard, or nobody.
func (s *shard) reachable(yes bool) {
	s.t.Helper()
	dsn := s.db.As(migrate.RoleReader)
	if !yes {
		dsn = "postgres://cellquota_reader@127.0.0.1:1/none"
	}
	if err := os.WriteFile(s.file, []byte(dsn+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// sell sells n units; the first paid of them are paid, the next closed are closed.
func (s *shard) sell(prefix string, n, paid, closed int) {
	s.t.Helper()
	for i := range n {
		user := fmt.Sprintf("%s%d", prefix, i)
		s.do("SELECT sale.sell(1, 's', $1)", user)
		switch {
		case i < paid:
			s.do("SELECT sale.pay(1, 's', $1)", user)
		case i < paid+closed:
			s.do("SELECT sale.close(1, 's', $1)", user)
		}
	}
}

// cells is the hub and the mirrors as this room's neighbours: what they say is set
// by the test.
type cells struct {
	mu      sync.Mutex
	held    map[ids.CellID]core.HeldFacts
	late    []string
	mirrors map[ids.CellID]verify.MirrorFacts
}

func (c *cells) Held(cell ids.CellID, _ core.BookKey) (core.HeldFacts, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.held[cell]
	return f, ok
}

func (c *cells) CampaignReady(ids.CampaignID, int64, []ids.CellID) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

func (c *cells) Mirror(_ context.Context, cell ids.CellID, _ core.BookKey) (verify.MirrorFacts, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.mirrors[cell]
	if !ok {
		return verify.MirrorFacts{}, errors.New("nobody answers")
	}
	return m, nil
}

// world is two real shards with 40 units each of a limit of 100, on a real etcd.
type world struct {
	t       *testing.T
	client  *clientv3.Client
	prefix  string
	store   *store.Store
	view    *view.View
	shards  map[ids.CellID]*shard
	reader  *shards.Reader
	cells   *cells
	archive archive.Archive
	leader  core.Leader
	lease   int64
	after   time.Duration
}

var worlds struct {
	sync.Mutex
	n int
}

func both() []ids.CellID { return []ids.CellID{"cell-1", "cell-2"} }

func newShards(t *testing.T) map[ids.CellID]*shard {
	t.Helper()
	out := map[ids.CellID]*shard{}
	for _, id := range both() {
		out[id] = newShard(t, id)
	}
	return out
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, testkit.Etcd(t, 1), newShards(t))
}

// newWorldOn makes a world under a prefix of its own.
func newWorldOn(t *testing.T, etcd *testkit.EtcdCluster, of map[ids.CellID]*shard) *world {
	t.Helper()
	worlds.Lock()
	worlds.n++
	w := &world{
		t: t, client: etcd.Client(t), prefix: fmt.Sprintf("/world-%d", worlds.n), shards: of, reader: shards.New(shards.Options{Timeout: 5 * time.Second}),
		cells: &cells{held: map[ids.CellID]core.HeldFacts{}, mirrors: map[ids.CellID]verify.MirrorFacts{}}, archive: archive.Directory{Dir: t.TempDir()},
	}
	worlds.Unlock()
	t.Cleanup(w.reader.Close)
	w.store = w.openStore(nil)
	var err error
	if w.view, err = view.New(w.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.publish()
	return w
}

func (w *world) openStore(kv func(clientv3.KV) clientv3.KV) *store.Store {
	w.t.Helper()
	s, err := store.Open(store.Config{Endpoints: w.client.Endpoints(), Prefix: w.prefix}, store.Deps{Clock: clock.System(), KV: kv})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *world) update(middle func(tx *store.Tx) error) {
	w.t.Helper()
	revision, err := w.store.Update(testkit.Deadline(w.t), "test", middle)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.view.WaitFor(testkit.Deadline(w.t), revision); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) publish() {
	w.t.Helper()
	q := quantity.Must
	records := map[ids.CellID]core.Cell{}
	book := core.Book{Key: key, SaleLimit: q(100), Reserve: q(20)}
	record := core.Record{ID: core.PublishRecordID(key), Key: key, Actor: "me", BookVersion: 1, At: time.Now().UTC(), Parameters: "p"}
	for _, id := range both() {
		c := core.Cell{Spec: core.CellSpec{
			ID: id, Region: "east", InstanceGroup: "blue", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
			Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
			Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: w.shards[id].file, FencerDSNFile: "f"},
		}, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "blue"}
		records[id] = c
		w.update(func(tx *store.Tx) error { _, _, err := tx.Cell(id); return errors.Join(err, tx.PutCell(c)) })
		book.Allocations = append(book.Allocations, core.Allocation{Cell: id, Granted: q(40), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive, FirstGrant: q(40)})
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: core.FirstGrantID(key, id), Key: key, Cell: id, Kind: core.KindGrant, Units: q(40), State: core.StateDone, Outcome: core.OutcomeApplied,
			Step: core.Step{FenceVersion: 1, Number: 1}, CreatedAt: time.Now().UTC(),
		})
	}
	campaign := w.campaign()
	w.update(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(key)
		_, _, e2 := tx.Record(record.ID)
		_, _, e3 := tx.Campaign("c")
		_, _, e4 := tx.Stock("s")
		return errors.Join(e1, e2, e3, e4, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record), tx.PutCampaign(campaign),
			tx.PutStock(core.PhysicalStock{SKU: "s", Units: q(150), Version: 1, Limits: map[ids.CampaignID]quantity.Quantity{"c": q(100), "other": q(50)}}))
	})
	w.lead()
	for _, id := range both() {
		w.alive(id)
		w.quiet(id)
	}
}

func (w *world) campaign() core.Campaign {
	now, q := time.Now(), quantity.Must
	return core.Campaign{
		Spec: core.CampaignSpec{
			ID: "c", OpenAt: now.Add(-time.Minute), CloseAt: now.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: both(),
			SKUs: []core.SKUSpec{{
				ID: "s", PhysicalStock: q(150), SaleLimit: q(100), Inventory: core.InventoryCounter, Price: core.Money{Amount: "10", Currency: "CNY"}, Reserve: q(20),
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now.UTC(),
	}
}

// lead takes the lead; the leader before this one has lost its key.
func (w *world) lead() {
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
}

func (w *world) alive(id ids.CellID) {
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
}

// quiet: the cell's mirror counts nothing that has no outcome.
func (w *world) quiet(id ids.CellID) {
	w.cells.mu.Lock()
	defer w.cells.mu.Unlock()
	w.cells.mirrors[id] = verify.MirrorFacts{Present: true, FenceVersion: 1}
}

// reported: the cell reports these figures.
func (w *world) reported(id ids.CellID, granted, confirmed int64) {
	w.cells.mu.Lock()
	defer w.cells.mu.Unlock()
	w.cells.held[id] = core.HeldFacts{FenceVersion: 1, Granted: quantity.Must(granted), Confirmed: quantity.Must(confirmed)}
}

func (w *world) driver(s *store.Store, a archive.Archive) *settle.Driver {
	return settle.New(settle.Config{After: w.after}, settle.Deps{
		Store: s, View: w.view, Shards: w.reader, Mirrors: w.cells, Cells: w.cells, Archive: a, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
}

// tick is one look of a new driver of the present leader.
func (w *world) tick() {
	w.t.Helper()
	w.driver(w.store, w.archive).Tick(testkit.Deadline(w.t), w.leader)
	w.seen()
}

// seen waits until the view shows what etcd holds.
func (w *world) seen() view.Snapshot {
	w.t.Helper()
	head, err := w.store.Head(testkit.Deadline(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := w.view.WaitFor(testkit.Deadline(w.t), head)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) book() core.Book {
	w.t.Helper()
	b, ok := w.seen().Book(key)
	if !ok {
		w.t.Fatal("no book")
	}
	return b
}

func (w *world) now() core.Campaign {
	w.t.Helper()
	c, ok := w.seen().Campaign("c")
	if !ok {
		w.t.Fatal("no campaign")
	}
	return c
}

func (w *world) stock() (out core.PhysicalStock) {
	w.t.Helper()
	w.update(func(tx *store.Tx) (err error) { out, _, err = tx.Stock("s"); return err })
	return out
}

// close ends the sale by hand.
func (w *world) close() {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		if err != nil {
			return err
		}
		next, _, err := c.Step(core.EventClose)
		return errors.Join(err, tx.PutCampaign(next))
	})
}

// edit changes the book by a record of its own, as any move does.
func (w *world) edit(id string, change func(core.Book) (core.Book, []core.Adjustment, error)) {
	w.t.Helper()
	if _, err := w.store.Move(testkit.Deadline(w.t), store.Move{
		RecordID: id, Key: key, Actor: "me", Method: "test", Parameters: id,
		Edit: func(b core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) { return change(b) },
	}); err != nil {
		w.t.Fatal(err)
	}
	w.seen()
}

// soldOut: the reserve went to cell-1, and both cells sold everything.
func (w *world) soldOut() {
	w.t.Helper()
	w.edit("fix", func(b core.Book) (core.Book, []core.Adjustment, error) {
		b.Reserve, b.Allocations[0].Granted = quantity.Must(0), quantity.Must(60)
		return b, nil, nil
	})
	w.reported("cell-1", 60, 60)
	w.reported("cell-2", 40, 40)
}

func (w *world) setRefund(rule core.Refund) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		c.Spec.Refund = rule
		return errors.Join(err, tx.PutCampaign(c))
	})
}

// freshReader forgets the connections to the shards: their address files changed.
func (w *world) freshReader() {
	w.reader = shards.New(shards.Options{Timeout: 5 * time.Second})
	w.t.Cleanup(w.reader.Close)
}
