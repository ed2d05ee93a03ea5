package quota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

var (
	key = core.BookKey{Campaign: "double-eleven", SKU: "phone-x"}
	who = intent.Caller{Name: "ann", Method: "test"}
	q   = quantity.Must
)

// rig is the books of one SKU over a real etcd, the verbs of any replica, the
// drivers of a leader that can be replaced before any step, and shards that decide.
type rig struct {
	t        *testing.T
	etcd     *testkit.EtcdCluster
	store    *store.Store
	view     *view.View
	intent   *intent.Service
	leader   core.Leader
	lease    int64 // the leader's
	shards   shards
	registry *prometheus.Registry
	leases   map[ids.CellID]int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, etcd: testkit.Etcd(t, 1), shards: shards{}, registry: prometheus.NewRegistry(), leases: map[ids.CellID]int64{}}
	r.open(r.etcd.Endpoints())
	r.lead()
	return r
}

func (r *rig) open(endpoints []string) {
	var err error
	if r.store, err = store.Open(store.Config{Endpoints: endpoints, Prefix: "/cellquota"}, store.Deps{Clock: clock.System(), Registry: r.registry}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.store.Close() })
	if r.view, err = view.New(r.store, view.Deps{Clock: clock.System(), Registry: r.registry}); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.view.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-done })
	r.intent = &intent.Service{Store: r.store, View: r.view, Clock: clock.System()}
}

// lead makes another leader; the one before leads no more.
func (r *rig) lead() {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	if r.lease != 0 {
		if err := r.store.RevokeLease(ctx, r.lease); err != nil {
			r.t.Fatal(err)
		}
	}
	var err error
	if r.lease, err = r.store.GrantLease(ctx, time.Minute); err != nil {
		r.t.Fatal(err)
	}
	if r.leader, err = r.store.TakeLead(ctx, r.lease, "here", ids.NewOperationID()); err != nil {
		r.t.Fatal(err)
	}
}

func cellID(i int) ids.CellID { return ids.CellID(fmt.Sprintf("cell-%d", i)) }

// sells writes a campaign on sale, its stock, its book and living cells that have
// applied their first grants.
func (r *rig) sells(stock, limit int64, granted ...int64) {
	r.t.Helper()
	open := clock.System().Now().Add(-time.Minute)
	spec := core.CampaignSpec{
		ID: key.Campaign, OpenAt: open, CloseAt: open.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
		HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
		Permits: core.PermitRules{ClaimFrom: open, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second},
	}
	explicit := map[string]quantity.Quantity{}
	reserve := limit
	for i, n := range granted {
		spec.Cells = append(spec.Cells, cellID(i+1))
		explicit[string(cellID(i+1))] = q(n)
		reserve -= n
	}
	spec.SKUs = []core.SKUSpec{{
		ID: key.SKU, PhysicalStock: q(stock), SaleLimit: q(limit), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "EUR"},
		Reserve: q(reserve), Split: core.SplitRules{Policy: allocator.Explicit, Units: cellUnits(granted)}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
	}}
	_, err := r.store.Update(testkit.Deadline(r.t), "sell", func(tx *store.Tx) error { return r.write(tx, spec) })
	if err != nil {
		r.t.Fatal(err)
	}
	for i, n := range granted {
		r.alive(cellID(i + 1))
		r.shards[cellID(i+1)] = newShard(n)
	}
	r.caughtUp()
}

func cellUnits(granted []int64) map[ids.CellID]quantity.Quantity {
	out := map[ids.CellID]quantity.Quantity{}
	for i, n := range granted {
		out[cellID(i+1)] = q(n)
	}
	return out
}

// write is the publish in one transaction.
func (r *rig) write(tx *store.Tx, spec core.CampaignSpec) error {
	cells := map[ids.CellID]core.Cell{}
	var errs []error
	for _, id := range spec.Cells {
		c := core.Cell{
			Spec: core.CellSpec{
				ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
				Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: string(id), Partitions: 1, Replication: 1},
				Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "f"},
			},
			State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a",
		}
		cells[id] = c
		_, _, err := tx.Cell(id)
		errs = append(errs, err, tx.PutCell(c))
	}
	split, err := spec.Preview(cells)
	if err != nil {
		return err
	}
	book, steps, err := core.NewBook(key, split.Plans[0], cells)
	if err != nil {
		return err
	}
	record := core.Record{ID: core.PublishRecordID(key), Key: key, Actor: "ann", At: tx.Now(), BookVersion: 1}
	for i, g := range split.Plans[0].Grants {
		if !g.Units.IsZero() {
			record.Adjustments = append(record.Adjustments, core.Adjustment{
				ID: core.FirstGrantID(key, ids.CellID(g.Cell)), Key: key, Cell: ids.CellID(g.Cell), Kind: core.KindGrant, Units: g.Units,
				State: core.StateDone, Outcome: core.OutcomeApplied, Step: steps[i],
			})
		}
	}
	stock, _, err := core.PhysicalStock{}.Take(key.SKU, key.Campaign, spec.SKUs[0].PhysicalStock, spec.SKUs[0].SaleLimit)
	campaign := core.Campaign{Spec: spec, State: core.CampaignPublished, Version: 3, BookedSKUs: []ids.SKUID{key.SKU}}
	_, _, e1 := tx.Campaign(spec.ID)
	_, _, e2 := tx.Book(key)
	_, _, e3 := tx.Route(spec.ID)
	_, _, e4 := tx.Stock(key.SKU)
	_, _, e5 := tx.Record(record.ID)
	return errors.Join(append(errs, err, e1, e2, e3, e4, e5, tx.PutCampaign(campaign), tx.PutBook(book.Stamp(record.ID)), tx.PutStock(stock), tx.PutRecord(record),
		tx.PutRoute(core.Route{Campaign: spec.ID, Version: 1, Domains: split.Domains}))...)
}

// alive gives a cell a process under a lease.
func (r *rig) alive(id ids.CellID) {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	lease, err := r.store.GrantLease(ctx, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.store.Register(ctx, r.leader, core.Instance{Cell: id, ID: "p", Group: "a", Lease: lease}, func(core.Cell) error { return nil }); err != nil {
		r.t.Fatal(err)
	}
	r.leases[id] = lease
}

// suspect ends the cell's lease.
func (r *rig) suspect(id ids.CellID) {
	r.t.Helper()
	if err := r.store.RevokeLease(testkit.Deadline(r.t), r.leases[id]); err != nil {
		r.t.Fatal(err)
	}
	r.caughtUp()
}

// cell changes a cell's record.
func (r *rig) cell(id ids.CellID, change func(*core.Cell)) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "cell", func(tx *store.Tx) error {
		c, _, err := tx.Cell(id)
		if err != nil {
			return err
		}
		c.Version++
		change(&c)
		return tx.PutCell(c)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.caughtUp()
}

func (r *rig) caughtUp() {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	head, err := r.store.Head(ctx)
	if err == nil {
		_, err = r.view.WaitFor(ctx, head)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) deps() quota.Deps {
	return quota.Deps{Store: r.store, View: r.view, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
}

// step lets a fresh driver, as after a crash, take every open operation one step on.
func (r *rig) step() error {
	r.t.Helper()
	r.caughtUp()
	var errs []error
	for _, op := range r.view.Snapshot().OpenOperations() {
		switch op.Kind {
		case core.OperationTransfer:
			errs = append(errs, quota.Transfers{Deps: r.deps()}.Step(testkit.Deadline(r.t), r.leader, op))
		case core.OperationRebalance:
			errs = append(errs, quota.Rebalances{Deps: r.deps()}.Step(testkit.Deadline(r.t), r.leader, op))
		case core.OperationSetLimit:
			errs = append(errs, quota.NewLimits(r.deps(), r.shards, time.Nanosecond).Step(testkit.Deadline(r.t), r.leader, op))
		}
	}
	r.caughtUp()
	return errors.Join(errs...)
}

// answer lets every shard decide what is open for it, in the order of numbers, and
// books the answers; a limit change is recorded. It gives how many were booked.
func (r *rig) answer() int {
	r.t.Helper()
	r.caughtUp()
	n := 0
	for _, record := range r.view.Snapshot().OpenRecords() {
		for _, a := range record.Adjustments {
			if !a.Open() {
				continue
			}
			outcome := core.OutcomeApplied
			if a.Kind != core.KindLimit {
				if outcome = r.shards[a.Cell].decide(a); outcome == 0 {
					continue
				}
			}
			if _, err := r.store.Settle(testkit.Deadline(r.t), r.leader, record.ID, a.ID, outcome); err != nil {
				r.t.Fatal(err)
			}
			n++
		}
	}
	r.caughtUp()
	return n
}

// settle steps and answers until nothing moves, and gives the operation.
func (r *rig) settle(id string) core.Operation {
	r.t.Helper()
	for range 40 {
		if err := r.step(); err != nil {
			r.t.Fatal(err)
		}
		moved := r.answer()
		if op := r.op(id); op.State.Terminal() && moved == 0 {
			return op
		}
	}
	r.t.Fatalf("operation %s does not end: %+v", id, r.op(id))
	return core.Operation{}
}

func (r *rig) op(id string) core.Operation {
	r.t.Helper()
	op, err := r.store.Operation(testkit.Deadline(r.t), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return op
}

func (r *rig) book() core.Book {
	r.t.Helper()
	b, err := r.store.Book(testkit.Deadline(r.t), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// has checks limit, reserve and allocations of the book.
func (r *rig) has(limit, reserve int64, granted ...int64) {
	r.t.Helper()
	b := r.book()
	ok := b.SaleLimit.Int64() == limit && b.Reserve.Int64() == reserve && b.Check() == nil
	for i, n := range granted {
		a, _ := b.Allocation(cellID(i + 1))
		ok = ok && a.Granted.Int64() == n
	}
	if !ok {
		r.t.Errorf("limit %s, reserve %s, allocations %+v; want %d, %d, %v", b.SaleLimit, b.Reserve, b.Allocations, limit, reserve, granted)
	}
	for id, s := range r.shards { // I2: no shard was granted more than the book allocates to it
		if a, _ := b.Allocation(id); s.granted > a.Granted.Int64() {
			r.t.Errorf("the shard of %s was granted %d, the book allocates %s", id, s.granted, a.Granted)
		}
	}
}

func (r *rig) topUp(id string, cell int, units int64) {
	r.t.Helper()
	if _, err := r.intent.TopUp(testkit.Deadline(r.t), who, intent.TopUp{AdjustmentID: id, Key: key, Cell: cellID(cell), Units: q(units)}, false); err != nil {
		r.t.Fatal(err)
	}
}

// limit is a change to n that knows what the shards say.
func (r *rig) limit(id string, n int64) intent.SetLimit {
	r.t.Helper()
	r.caughtUp()
	floor, err := quota.Floor(testkit.Deadline(r.t), r.view.Snapshot(), r.shards, key)
	if err != nil {
		r.t.Fatal(err)
	}
	return intent.SetLimit{OperationID: id, Key: key, Limit: q(n), Floor: floor, Reason: "why"}
}

func (r *rig) setLimit(id string, n int64) core.Operation {
	r.t.Helper()
	op, _, err := r.intent.SetSaleLimit(testkit.Deadline(r.t), who, r.limit(id, n), false)
	if err != nil {
		r.t.Fatal(err)
	}
	return op
}

func (r *rig) closes() {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "close", func(tx *store.Tx) error {
		c, _, err := tx.Campaign(key.Campaign)
		if err != nil {
			return err
		}
		c, _, err = c.Step(core.EventClose)
		return errors.Join(err, tx.PutCampaign(c))
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.caughtUp()
}

func (r *rig) stock() int64 {
	r.t.Helper()
	s, _ := r.view.Snapshot().Stock(key.SKU)
	return s.Limits[key.Campaign].Int64()
}
