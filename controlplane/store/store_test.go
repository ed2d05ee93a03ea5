package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
)

const prefix = "/cellquota"

var (
	key  = core.BookKey{Campaign: "double-eleven", SKU: "phone-x"}
	spec = core.CellSpec{
		Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
		Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "c"},
	}
)

// platform is a store with the demo's cells and book in it.
type platform struct {
	*store.Store
	etcd     *testkit.EtcdCluster
	client   *clientv3.Client
	registry *prometheus.Registry
	loser    *loser
}

func open(t *testing.T) *platform {
	t.Helper()
	p := &platform{etcd: testkit.Etcd(t, 1), registry: prometheus.NewRegistry(), loser: &loser{}}
	p.client = p.etcd.Client(t)
	var err error
	p.Store, err = store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{
		Clock: clock.System(), Registry: p.registry, KV: func(kv clientv3.KV) clientv3.KV { p.loser.KV = kv; return p.loser },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func demo(t *testing.T) *platform {
	t.Helper()
	p := open(t)
	cells := map[ids.CellID]core.Cell{}
	var shares []allocator.Share
	for i := range 4 {
		c := core.Cell{Spec: spec, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a"}
		c.Spec.ID = ids.CellID(fmt.Sprintf("cell-%d", i+1))
		cells[c.Spec.ID] = c
		shares = append(shares, allocator.Share{Cell: string(c.Spec.ID)})
		p.putCell(t, c)
	}
	plan, err := allocator.Split(allocator.Request{Limit: quantity.Must(10_000), Reserve: quantity.Must(400), Policy: allocator.Equal, Cells: shares})
	if err != nil {
		t.Fatal(err)
	}
	book, _, err := core.NewBook(key, plan, cells)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Update(testkit.Deadline(t), "seed", func(tx *store.Tx) error {
		if _, _, err := tx.Book(key); err != nil {
			return err
		}
		return tx.PutBook(book.Stamp("publish"))
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *platform) putCell(t *testing.T, c core.Cell) {
	t.Helper()
	_, err := p.Update(testkit.Deadline(t), "put cell", func(tx *store.Tx) error {
		if _, _, err := tx.Cell(c.Spec.ID); err != nil {
			return err
		}
		return tx.PutCell(c)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// topUp is the move that a TopUp call makes.
func topUp(id string, cell ids.CellID, units int64) store.Move {
	return store.Move{
		RecordID: id, Parameters: fmt.Sprint(cell, units), Key: key, Actor: "me", Method: "TopUp",
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			q := quantity.Must(units)
			next, step, err := book.Grant(cells[cell], q)
			return next, []core.Adjustment{{ID: id, Key: key, Cell: cell, Kind: core.KindGrant, Units: q, State: core.StateBooked, Step: step}}, err
		},
	}
}

// loser drops answers: of the next n commits (after they happened) and, when
// silent, of every read.
type loser struct {
	clientv3.KV
	commits atomic.Int32
	silent  atomic.Bool
	refuse  atomic.Int32 // commits that fail without having happened, answer unknown
}

var errLost = fmt.Errorf("answer lost: %w", context.DeadlineExceeded)

func (l *loser) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if l.silent.Load() {
		return nil, errLost
	}
	return l.KV.Get(ctx, key, opts...)
}

func (l *loser) Txn(ctx context.Context) clientv3.Txn { return &loserTxn{Txn: l.KV.Txn(ctx), l: l} }

type loserTxn struct {
	clientv3.Txn
	l      *loser
	writes bool
}

func (t *loserTxn) If(c ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(c...); return t }

func (t *loserTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		t.writes = t.writes || !op.IsGet()
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *loserTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.writes && t.l.refuse.Add(-1) >= 0 {
		return nil, errLost
	}
	resp, err := t.Txn.Commit()
	if t.writes && err == nil && t.l.commits.Add(-1) >= 0 {
		return nil, errLost
	}
	return resp, err
}

func (p *platform) book(t *testing.T) core.Book {
	t.Helper()
	b, err := p.Book(testkit.Deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *platform) granted(t *testing.T, cell ids.CellID) int64 {
	a, _ := p.book(t).Allocation(cell)
	return a.Granted.Int64()
}

func (p *platform) counted(kind, outcome string) float64 {
	families, _ := p.registry.Gather()
	for _, f := range families {
		if f.GetName() != "cellquota_journal_operations_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == kind && m.GetLabel()[1].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestMoveIsMadeOnce(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	first, err := p.Move(ctx, topUp("a1", "cell-1", 100))
	if err != nil || first.Replayed || first.Book.Reserve.Int64() != 300 || first.Revision == 0 {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := p.Move(ctx, topUp("a1", "cell-1", 100))
	if err != nil || !again.Replayed || again.Record.Adjustments[0].Step != first.Record.Adjustments[0].Step || again.Record.CreateRevision != first.Record.CreateRevision {
		t.Fatalf("again: %+v, %v", again, err)
	}
	if _, err := p.Move(ctx, topUp("a1", "cell-1", 101)); !errors.Is(err, core.ErrIDReused) {
		t.Fatalf("other parameters: %v, want ErrIDReused", err)
	}
	if _, err := p.Move(ctx, topUp("a2", "cell-1", 301)); !errors.Is(err, core.ErrReserveShort) {
		t.Fatalf("more than the reserve: %v, want ErrReserveShort", err)
	}
	stale := topUp("a3", "cell-1", 1)
	stale.ExpectedVersion = 1
	if _, err := p.Move(ctx, stale); !errors.Is(err, core.ErrVersion) || rpcstatus.Metadata(err)["version"] != "2" {
		t.Fatalf("old version: %v, want ErrVersion with the present one", err)
	}
	unknown := topUp("a4", "cell-1", 1)
	unknown.Key.SKU = "other"
	if _, err := p.Move(ctx, unknown); !errors.Is(err, core.ErrUnknownSKU) {
		t.Fatalf("unknown SKU: %v", err)
	}
	if b := p.book(t); b.Reserve.Int64() != 300 || b.Version != 2 || b.LastRecordID != "a1" {
		t.Fatalf("book is %+v", b)
	}
	for outcome, want := range map[string]float64{"BOOKED": 1, "REPLAYED": 1} {
		if got := p.counted("GRANT", outcome); got != want {
			t.Errorf("journal_operations_total{GRANT,%s} = %v, want %v", outcome, got, want)
		}
	}
	if got := p.counted("ANY", "CONFLICT"); got != 1 {
		t.Errorf("conflicts counted: %v", got)
	}
	if n := testutil.CollectAndCount(p.registry); n == 0 {
		t.Error("no metric")
	}
}

// K23: the answer of the top-up is cut five times in a row. K24: a retry that
// finds its own record is no conflict.
func TestLostAnswersMakeNoSecondTopUp(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	for i := range 5 {
		p.loser.commits.Store(1)
		moved, err := p.Move(ctx, topUp("a1", "cell-1", 100))
		if err != nil {
			t.Fatalf("try %d: %v", i, err)
		}
		if !moved.Replayed {
			t.Fatalf("try %d: the answer was not lost", i)
		}
	}
	p.loser.commits.Store(0)
	if b := p.book(t); b.Reserve.Int64() != 300 || b.Version != 2 || p.granted(t, "cell-1") != 2_500 {
		t.Fatalf("after five lost answers: reserve %s, version %d, cell-1 %d", b.Reserve, b.Version, p.granted(t, "cell-1"))
	}
	if _, err := p.Move(ctx, topUp("a2", "cell-1", 100)); err != nil {
		t.Fatalf("another id is another top-up: %v", err)
	}
	if got := p.granted(t, "cell-1"); got != 2_600 {
		t.Fatalf("cell-1 has %d", got)
	}
}

// The commit that did not happen, its answer lost too, is made by the retry.
func TestLostRequestIsMadeByTheRetry(t *testing.T) {
	p := demo(t)
	p.loser.refuse.Store(3)
	moved, err := p.Move(testkit.Deadline(t), topUp("a1", "cell-1", 100))
	if err != nil || moved.Replayed || p.book(t).Reserve.Int64() != 300 {
		t.Fatalf("%+v, %v", moved, err)
	}
}

// When etcd cannot be read either, the caller learns that it may have happened,
// and the same id tells him later.
func TestUnknownOutcomeIsSaid(t *testing.T) {
	p := demo(t)
	p.loser.commits.Store(1)
	ctx, cancel := context.WithCancel(testkit.Deadline(t))
	m := topUp("a1", "cell-1", 100)
	edit := m.Edit
	m.Edit = func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		p.loser.silent.Store(true) // from here on no read is answered
		return edit(b, cells)
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		testkit.Eventually(t, testDeadline, func() error {
			if p.loser.commits.Load() > 0 {
				return errors.New("no commit was lost yet")
			}
			return nil
		})
		cancel()
	}()
	_, err := p.Move(ctx, m)
	<-stop
	if !errors.Is(err, core.ErrUnknownOutcome) {
		t.Fatalf("%v, want ErrUnknownOutcome", err)
	}
	p.loser.silent.Store(false)
	moved, err := p.Move(testkit.Deadline(t), topUp("a1", "cell-1", 100))
	if err != nil || !moved.Replayed || p.book(t).Reserve.Int64() != 300 {
		t.Fatalf("the same id later: %+v, %v", moved, err)
	}
}

func TestUnreachableStoreDidNothing(t *testing.T) {
	p := demo(t)
	p.loser.silent.Store(true)
	ctx, cancel := context.WithTimeout(testkit.Deadline(t), testDeadline/100)
	defer cancel()
	_, err := p.Move(ctx, topUp("a1", "cell-1", 100))
	if !errors.Is(err, core.ErrStoreUnavailable) || errors.Is(err, core.ErrUnknownOutcome) {
		t.Fatalf("%v, want ErrStoreUnavailable and not ErrUnknownOutcome", err)
	}
}

// Sixteen writers at once, some ids shared, a cell fenced in the middle, answers
// lost now and then: at every etcd revision sale_limit = reserve + Σ granted, and
// every id moved its units once.
func TestI1AtEveryRevision(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	var wg sync.WaitGroup
	var booked atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			for i := range 6 {
				if (w+i)%5 == 0 {
					p.loser.commits.Add(1)
				}
				id := fmt.Sprintf("a-%d-%d", w/2, i) // two writers share each id
				moved, err := p.Move(ctx, topUp(id, ids.CellID(fmt.Sprintf("cell-%d", i%4+1)), 1))
				switch {
				case errors.Is(err, core.ErrCellState): // fenced in the meantime
				case err != nil:
					t.Errorf("%s: %v", id, err)
				case !moved.Replayed:
					booked.Add(1)
				}
				if w == 3 && i == 2 {
					c, err := p.Cell(ctx, "cell-4")
					if err != nil {
						t.Error(err)
						return
					}
					c.State, c.FenceVersion, c.Version = core.CellFencing, 2, 2
					p.putCell(t, c)
				}
			}
		})
	}
	wg.Wait()
	walkI1(t, p)
	b := p.book(t)
	if b.Reserve.Int64()+b.Allocated() != 10_000 || b.Version < 2 {
		t.Fatalf("book %+v", b)
	}
	moves := b.Version - 1
	if spent := 400 - b.Reserve.Int64(); spent != moves {
		t.Fatalf("%d units left the reserve in %d moves of one unit", spent, moves)
	}
}

// walkI1 reads the book at every revision of etcd's history.
func walkI1(t *testing.T, p *platform) {
	t.Helper()
	ctx := testkit.Deadline(t)
	head, err := p.client.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for rev := int64(1); rev <= head.Header.Revision; rev++ {
		got, err := p.client.Get(ctx, prefix+"/books/"+key.String(), clientv3.WithRev(rev))
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range got.Kvs {
			b, err := store.DecodeBook(kv.Value)
			if err != nil {
				t.Fatalf("revision %d: %v", rev, err)
			}
			if sum := b.Reserve.Int64() + b.Allocated(); sum != b.SaleLimit.Int64() {
				t.Fatalf("revision %d: reserve and allocations add up to %d of %s", rev, sum, b.SaleLimit)
			}
			seen++
		}
	}
	if seen < 20 {
		t.Fatalf("only %d revisions held the book", seen)
	}
}
