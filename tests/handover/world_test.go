package handover_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/handover"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// patience bounds what a test waits for.
const patience = 20 * time.Second

var sre = intent.Caller{Name: "sre-1", Method: "test"}

// world is two cells with real shards under a control plane on a real etcd: the route
// gives each half of the buckets.
type world struct {
	t      *testing.T
	etcd   *testkit.EtcdCluster
	prefix string
	store  *store.Store
	view   *view.View
	people *intent.Service
	leader core.Leader
	lease  int64
	cells  map[ids.CellID]*cell

	mu     sync.Mutex
	silent map[ids.CellID]bool // shards that do not answer the fencer
	behind []string            // processes that do not serve the campaign
}

var worlds struct {
	sync.Mutex
	n int
}

func newWorld(t *testing.T, etcd *testkit.EtcdCluster, units int32) *world {
	t.Helper()
	worlds.Lock()
	worlds.n++
	w := &world{t: t, etcd: etcd, prefix: fmt.Sprintf("/handover-%d", worlds.n), cells: map[ids.CellID]*cell{}, silent: map[ids.CellID]bool{}}
	worlds.Unlock()
	w.store = w.openStore(store.Deps{Clock: clock.System()})
	var err error
	if w.view, err = view.New(w.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.people = &intent.Service{Store: w.store, View: w.view, Clock: clock.System()}
	w.cells["cell-a"], w.cells["cell-b"] = twoCells(t, units)
	w.publish()
	w.lead()
	for id := range w.cells {
		w.process(id, core.HandoverStep)
	}
	return w
}

func (w *world) openStore(deps store.Deps) *store.Store {
	w.t.Helper()
	s, err := store.Open(store.Config{Endpoints: w.etcd.Client(w.t).Endpoints(), Prefix: w.prefix}, deps)
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

// publish writes what a publish leaves behind, but books: no unit moves here.
func (w *world) publish() {
	w.t.Helper()
	now, q := time.Now(), quantity.Must
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-a", Weight: 1}, {Cell: "cell-b", Weight: 1}}, allocator.Buckets)
	if err != nil {
		w.t.Fatal(err)
	}
	c := core.Campaign{
		Spec: core.CampaignSpec{
			ID: campaign, OpenAt: now.Add(-time.Minute), CloseAt: now.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-a", "cell-b"},
			SKUs: []core.SKUSpec{{
				ID: phone, PhysicalStock: q(100), SaleLimit: q(100), Inventory: core.InventoryCounter, Price: core.Money{Amount: "10", Currency: "EUR"}, Reserve: q(10),
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now,
	}
	w.update(func(tx *store.Tx) error {
		var errs []error
		for _, id := range []ids.CellID{"cell-a", "cell-b", "cell-c"} {
			_, _, err := tx.Cell(id)
			errs = append(errs, err, tx.PutCell(core.Cell{Spec: specOf(id), State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: group}))
		}
		_, _, e1 := tx.Campaign(campaign)
		_, _, e2 := tx.Route(campaign)
		return errors.Join(append(errs, e1, e2, tx.PutCampaign(c), tx.PutRoute(core.Route{Campaign: campaign, Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))...)
	})
}

func specOf(id ids.CellID) core.CellSpec {
	return core.CellSpec{
		ID: id, Region: "east", InstanceGroup: group, Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
		Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "f"},
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

// process registers a process of a cell whose program knows the schema up to a step,
// in the place of the one before.
func (w *world) process(id ids.CellID, step int64) {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	for _, i := range w.view.Snapshot().Instances(id) {
		if err := w.store.RevokeLease(ctx, i.Lease); err != nil {
			w.t.Fatal(err)
		}
	}
	if step >= 0 {
		lease, err := w.store.GrantLease(ctx, time.Minute)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.store.Register(ctx, w.leader, core.Instance{Cell: id, ID: fmt.Sprint("p", step), Group: group, SchemaStep: step, ProgramVersion: "v0", Lease: lease}, func(core.Cell) error { return nil }); err != nil {
			w.t.Fatal(err)
		}
	}
	testkit.Eventually(w.t, patience, func() error {
		seen := w.view.Snapshot().Instances(id)
		if step < 0 && len(seen) == 0 || len(seen) == 1 && seen[0].SchemaStep == step {
			return nil
		}
		return fmt.Errorf("the view has %v", seen)
	})
}

// CampaignReady implements handover.Cells: the hub of the cells' streams.
func (w *world) CampaignReady(ids.CampaignID, int64, []ids.CellID) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.behind
}

func (w *world) hurt(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// open is the shard of a cell under the fencer's role.
func (w *world) open(ctx context.Context, spec core.CellSpec) (handover.Shard, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent[spec.ID] {
		return nil, fmt.Errorf("%w: silent", fencer.ErrUnreachable)
	}
	return fencer.Open(ctx, w.cells[spec.ID].db.As(migrate.RoleFencer), fencer.Options{LockWait: 200 * time.Millisecond})
}

func (w *world) driver(s *store.Store, open handover.Open) *handover.Driver {
	return handover.New(handover.Config{RetryInterval: time.Nanosecond, PageRows: 5, PagesPerStep: 3}, handover.Deps{Store: s, View: w.view, Cells: w, Open: open, Clock: clock.System()})
}

func request(id string, from, to ids.CellID, first, last uint16) intent.HandOver {
	return intent.HandOver{OperationID: id, Campaign: campaign, Reason: "a test", Handover: core.Handover{From: from, To: to, First: first, Last: last}}
}

func (w *world) ask(in intent.HandOver) {
	w.t.Helper()
	if _, err := w.people.HandOver(testkit.Deadline(w.t), sre, in, false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) operation(id string) core.Operation {
	w.t.Helper()
	op, err := w.store.Operation(testkit.Deadline(w.t), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}

// step drives an operation one step.
func (w *world) step(id string) core.Operation {
	w.t.Helper()
	if err := w.driver(w.store, w.open).Step(testkit.Deadline(w.t), w.leader, w.operation(id)); err != nil {
		w.t.Fatal(err)
	}
	return w.operation(id)
}

// done drives an operation to its end, which must be DONE.
func (w *world) done(id string) core.Operation {
	w.t.Helper()
	d := w.driver(w.store, w.open)
	testkit.Eventually(w.t, patience, func() error {
		op := w.operation(id)
		if op.State == core.OperationDone {
			return nil
		}
		if err := d.Step(testkit.Deadline(w.t), w.leader, op); err != nil {
			return err
		}
		return fmt.Errorf("%s: %s %s %s", id, op.State, op.Step, op.Detail)
	})
	return w.operation(id)
}

func (w *world) route() core.Route {
	w.t.Helper()
	var route core.Route
	if _, err := w.store.Update(testkit.Deadline(w.t), "read", func(tx *store.Tx) (err error) {
		route, _, err = tx.Route(campaign)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return route
}

func (w *world) home(user ids.UserID) *cell {
	w.t.Helper()
	home, _, ok := w.route().Home("", user)
	if !ok {
		w.t.Fatal("no home")
	}
	return w.cells[home]
}

// mortal are shards as one process sees them: each write is an effect.
type mortal struct {
	handover.Shard
	life *fault.Life
}

func (w *world) mortalShards(life *fault.Life) handover.Open {
	return func(ctx context.Context, spec core.CellSpec) (handover.Shard, error) {
		if life.Dead() {
			return nil, context.Canceled
		}
		s, err := w.open(ctx, spec)
		return mortal{s, life}, err
	}
}

func (s mortal) CloseBuckets(ctx context.Context, cell string, m fencer.Move) (out fencer.Closed, err error) {
	err = s.life.Spend(func() (err error) { out, err = s.Shard.CloseBuckets(context.WithoutCancel(ctx), cell, m); return err })
	return out, err
}

func (s mortal) spend(verb func() (fencer.Import, error)) (out fencer.Import, err error) {
	err = s.life.Spend(func() (err error) { out, err = verb(); return err })
	return out, err
}

func (s mortal) ImportBuckets(ctx context.Context, cell string, m fencer.Move, what fencer.Closed) (fencer.Import, error) {
	return s.spend(func() (fencer.Import, error) { return s.Shard.ImportBuckets(context.WithoutCancel(ctx), cell, m, what) })
}

func (s mortal) ImportBuyers(ctx context.Context, cell string, m fencer.Move, p fencer.Page[fencer.Buyer]) (fencer.Import, error) {
	return s.spend(func() (fencer.Import, error) { return s.Shard.ImportBuyers(context.WithoutCancel(ctx), cell, m, p) })
}

func (s mortal) ImportRequests(ctx context.Context, cell string, m fencer.Move, p fencer.Page[fencer.Request]) (fencer.Import, error) {
	return s.spend(func() (fencer.Import, error) { return s.Shard.ImportRequests(context.WithoutCancel(ctx), cell, m, p) })
}

func (s mortal) OpenBuckets(ctx context.Context, cell string, m fencer.Move) (fencer.Import, error) {
	return s.spend(func() (fencer.Import, error) { return s.Shard.OpenBuckets(context.WithoutCancel(ctx), cell, m) })
}

// live drives an operation with a driver that dies at its n-th effect, and tells
// whether it died before the operation ended.
func (w *world) live(id string, n int, after bool) (died bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(w.t))
	defer cancel()
	life := fault.Live(n, after, cancel)
	d := w.driver(w.openStore(store.Deps{Clock: clock.System(), KV: life.KV}), w.mortalShards(life))
	for range 100 {
		op := w.operation(id)
		if op.State.Terminal() {
			return life.Dead()
		}
		if err := d.Step(ctx, w.leader, op); err != nil && !life.Dead() {
			w.t.Fatalf("effect %d: %v", n, err)
		}
		if life.Dead() {
			return true
		}
	}
	w.t.Fatalf("effect %d: the operation neither ended nor died", n)
	return false
}
