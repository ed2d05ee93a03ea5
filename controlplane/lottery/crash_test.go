package lottery_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/evidence"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/lottery"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

var (
	key  = core.BookKey{Campaign: "c", SKU: "s"}
	seed = []byte(strings.Repeat("\x5a", allocator.SeedBytes))
)

const (
	units   = 7
	entered = 15 // in each cell
)

func cells() []ids.CellID { return []ids.CellID{"cell-1", "cell-2"} }

// world is a lottery whose entry is over: two real shards with entries, on a real etcd.
type world struct {
	t       *testing.T
	client  *clientv3.Client
	prefix  string
	store   *store.Store
	view    *view.View
	shards  map[ids.CellID]*testkit.Database
	archive string
	leader  core.Leader
	lease   int64
}

func shardTemplate(cell ids.CellID) testkit.Template {
	return testkit.Template{Name: "lottery-" + string(cell), Setup: func(ctx context.Context, dsn string) error {
		if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "SELECT cellquota.install($1, 'blue')", string(cell))
		for i := range entered {
			user := fmt.Sprintf("%s-u%02d", cell, i)
			_, failed := conn.Exec(ctx, "INSERT INTO cellquota.entries (campaign_id, sku_id, user_id, entry_id, tickets, entered_at) VALUES ('c', 's', $1, $2, $3, cellquota.now())",
				user, string(ids.DeriveEntry("c", "s", ids.UserID(user), cell)), 1+i%3)
			err = errors.Join(err, failed)
		}
		return err
	}}
}

func newWorld(t *testing.T, etcd *testkit.EtcdCluster, prefix string) *world {
	t.Helper()
	w := &world{t: t, client: etcd.Client(t), prefix: prefix, shards: map[ids.CellID]*testkit.Database{}, archive: t.TempDir()}
	for _, id := range cells() {
		w.shards[id] = testkit.Postgres(t).Database(t, shardTemplate(id))
	}
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
	w.lead()
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
	if err == nil {
		_, err = w.view.WaitFor(testkit.Deadline(w.t), revision)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) publish() {
	w.t.Helper()
	now, q := time.Now(), quantity.Must
	book := core.Book{Key: key, SaleLimit: q(units), Reserve: q(units)}
	for _, id := range cells() {
		c := core.Cell{Spec: core.CellSpec{
			ID: id, Region: "east", InstanceGroup: "blue", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
			Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
			Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "r", FencerDSNFile: filepath.Join("f", string(id))},
		}, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "blue"}
		w.update(func(tx *store.Tx) error { _, _, err := tx.Cell(id); return errors.Join(err, tx.PutCell(c)) })
		book.Allocations = append(book.Allocations, core.Allocation{Cell: id, FenceVersion: 1, CellVersion: 1, State: core.CellActive})
	}
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-1", Weight: 1}, {Cell: "cell-2", Weight: 1}}, allocator.Buckets)
	if err != nil {
		w.t.Fatal(err)
	}
	campaign := core.Campaign{
		Spec: core.CampaignSpec{
			ID: "c", OpenAt: now.Add(time.Minute), CloseAt: now.Add(time.Hour), Mode: core.ModeLottery, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: cells(),
			Lottery: &core.LotteryRules{EntryOpenAt: now.Add(-time.Hour), EntryCloseAt: now.Add(-time.Minute)},
			SKUs: []core.SKUSpec{{
				ID: "s", PhysicalStock: q(units), SaleLimit: q(units), Inventory: core.InventoryCounter, Price: core.Money{Amount: "10", Currency: "CNY"},
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now.UTC(), LotterySeed: seed, DrawOperation: "d1",
	}
	record := core.Record{ID: core.PublishRecordID(key), Key: key, Actor: "me", BookVersion: 1, At: now.UTC(), Parameters: "p"}
	op := core.Operation{ID: "d1", Kind: core.OperationDraw, Subject: "c", State: core.OperationPending, Step: lottery.StepDraw, Actor: "me", Reason: "noon", StartedAt: now.UTC(), Beacon: "3041.17", Version: 1}
	w.update(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(key)
		_, _, e2 := tx.Record(record.ID)
		_, _, e3 := tx.Campaign("c")
		_, _, e4 := tx.Route("c")
		_, _, e5 := tx.Operation("d1")
		return errors.Join(e1, e2, e3, e4, e5, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record), tx.PutCampaign(campaign), tx.PutOperation(op),
			tx.PutRoute(core.Route{Campaign: "c", Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))
	})
}

// lead takes the lead; the leader before this one has lost its key. The named cells, or all, register.
func (w *world) lead(alive ...ids.CellID) {
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
	if len(alive) == 0 {
		alive = cells()
	}
	for _, id := range alive {
		lease, err := w.store.GrantLease(ctx, time.Minute)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.store.Register(ctx, w.leader, core.Instance{Cell: id, ID: "p", Group: "blue", Lease: lease}, func(core.Cell) error { return nil }); err != nil {
			w.t.Fatal(err)
		}
		testkit.Eventually(w.t, 20*time.Second, func() error {
			if len(w.view.Snapshot().Instances(id)) == 0 {
				return errors.New("not seen yet")
			}
			return nil
		})
	}
}

// mortal is a shard as a process sees it that dies at one of its effects.
type mortal struct {
	*fencer.Fencer
	life *fault.Life
}

func (m mortal) CloseEntries(ctx context.Context, cell string, sku fencing.SKU) (n int64, err error) {
	err = m.life.Spend(func() (err error) {
		n, err = m.Fencer.CloseEntries(context.WithoutCancel(ctx), cell, sku)
		return err
	})
	return n, err
}

func (m mortal) DrawEntries(ctx context.Context, cell string, sku fencing.SKU, winners []string) error {
	return m.life.Spend(func() error { return m.Fencer.DrawEntries(context.WithoutCancel(ctx), cell, sku, winners) })
}

func (m mortal) EndDraw(ctx context.Context, cell string, sku fencing.SKU, winners int64) error {
	return m.life.Spend(func() error { return m.Fencer.EndDraw(context.WithoutCancel(ctx), cell, sku, winners) })
}

// mortalArchive likewise.
type mortalArchive struct {
	archive.Archive
	life *fault.Life
}

func (m mortalArchive) Put(ctx context.Context, name string, content []byte) (o core.ArchiveObject, err error) {
	err = m.life.Spend(func() (err error) {
		o, err = m.Archive.Put(context.WithoutCancel(ctx), name, content)
		return err
	})
	return o, err
}

// live drives the draw with a driver that dies at its n-th effect; true when it died before the end.
func (w *world) live(n int, after bool) bool {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(w.t))
	defer cancel()
	l := fault.Live(n, after, cancel)
	d := lottery.New(lottery.Deps{
		Store: w.openStore(l.KV), View: w.view, Archive: mortalArchive{archive.Directory{Dir: w.archive}, l}, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
		Open: func(ctx context.Context, spec core.CellSpec) (lottery.Shard, error) {
			if l.Dead() {
				return nil, context.Canceled
			}
			f, err := fencer.Open(ctx, w.shards[spec.ID].As(migrate.RoleFencer), fencer.Options{})
			return mortal{f, l}, err
		},
	})
	for range 20 {
		op, err := w.store.Operation(testkit.Deadline(w.t), "d1")
		if err != nil {
			w.t.Fatal(err)
		}
		if op.State.Terminal() {
			if op.State != core.OperationDone {
				w.t.Fatalf("effect %d: %+v", n, op)
			}
			return false
		}
		err = d.Step(ctx, w.leader, op)
		if l.Dead() {
			return true
		}
		if err != nil {
			w.t.Fatalf("effect %d: %v", n, err)
		}
	}
	w.t.Fatalf("effect %d: the draw neither ended nor died", n)
	return false
}

// snapshot is the view with all that was written.
func (w *world) snapshot(t *testing.T) view.Snapshot {
	t.Helper()
	head, err := w.client.Get(testkit.Deadline(t), w.prefix)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.view.WaitFor(testkit.Deadline(t), head.Header.Revision)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) book(t *testing.T) core.Book {
	t.Helper()
	book, _ := w.snapshot(t).Book(key)
	return book
}

func (w *world) won(t *testing.T, cell ids.CellID) (n int64) {
	t.Helper()
	if err := w.shards[cell].Conn(t).QueryRow(t.Context(), "SELECT count(*) FROM cellquota.v_entries WHERE state = 'WON'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// drawn is the one draw in the campaign's record, and its evidence, which holds.
func (w *world) drawn(t *testing.T) (core.LotteryDraw, evidence.Document) {
	t.Helper()
	campaign, _ := w.snapshot(t).Campaign("c")
	draw, drawn := campaign.Draw("s")
	if !drawn || len(campaign.Draws) != 1 || draw.Winners != units {
		t.Fatalf("the record: %+v", campaign.Draws)
	}
	commitment := allocator.Commitment([allocator.SeedBytes]byte(seed))
	doc, err := evidence.Verify(evidence.Claim{
		Campaign: "c", SKU: "s", Commitment: hex.EncodeToString(commitment[:]), Seed: hex.EncodeToString(seed), Beacon: "3041.17", EntrantsSHA256: draw.EntrantsSHA256,
		DocumentSHA256: draw.EvidenceSHA256, Units: units, Entrants: draw.Entrants, Winners: units,
	}, w.object(draw))
	if err != nil {
		t.Fatal(err)
	}
	return draw, doc
}

// end is what a draw must come to, whoever died: the winners of the one draw there is, in every place.
func (w *world) end(t *testing.T) {
	t.Helper()
	draw, doc := w.drawn(t)
	if draw.Entrants != 2*entered || draw.Ungranted != 0 {
		t.Fatalf("the record: %+v", draw)
	}
	book := w.book(t)
	if !book.Reserve.IsZero() || book.Check() != nil {
		t.Errorf("book %+v: %v", book, book.Check())
	}
	for i, id := range cells() {
		won := w.won(t, id)
		if granted := book.Allocations[i].Granted.Int64(); won != granted || won != doc.Cells[i].Winners || won == 0 {
			t.Errorf("%s: %d entries won, %d units were granted, the evidence says %d", id, won, granted, doc.Cells[i].Winners)
		}
	}
}

// object reads the evidence as the control plane hands it out.
func (w *world) object(draw core.LotteryDraw) func(string) ([]byte, error) {
	dir := archive.Directory{Dir: w.archive}
	return func(object string) ([]byte, error) {
		if object == "" {
			return dir.Get(w.t.Context(), core.ArchiveObject{Name: draw.Evidence, SHA256: draw.EvidenceSHA256, Size: draw.EvidenceSize})
		}
		for _, part := range w.parts(draw) {
			if part.Object == object {
				return dir.Get(w.t.Context(), core.ArchiveObject{Name: part.Object, SHA256: part.SHA256, Size: part.Size})
			}
		}
		return nil, fmt.Errorf("no object %s", object)
	}
}

// A driver that dies at any of its effects, before it or with the answer lost, is followed by another
// leader's, which comes to the very same winners.
func TestADriverMayDieAtEveryEffectOfADraw(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			ok := t.Run(fmt.Sprintf("effect %d, answer lost %v", n, after), func(t *testing.T) {
				w := newWorld(t, etcd, fmt.Sprintf("/draw-%d-%v", n, after))
				if died = w.live(n, after); died {
					w.lead()
					if w.live(1_000, false) {
						t.Fatal("the next leader's driver died too")
					}
				}
				w.end(t)
			})
			if !ok {
				return
			}
			if !died {
				if n < 10 {
					t.Fatalf("only %d effects were found: the test looks at nothing", n-1)
				}
				break
			}
		}
	}
}

// parts lists the objects that the document names.
func (w *world) parts(draw core.LotteryDraw) []evidence.Part {
	raw, err := archive.Directory{Dir: w.archive}.Get(w.t.Context(), core.ArchiveObject{Name: draw.Evidence, SHA256: draw.EvidenceSHA256, Size: draw.EvidenceSize})
	if err != nil {
		w.t.Fatal(err)
	}
	var doc evidence.Document
	if err := json.Unmarshal(raw, &doc); err != nil {
		w.t.Fatal(err)
	}
	return append(doc.EntrantParts, doc.WinnerParts...)
}
