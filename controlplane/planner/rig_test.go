package planner_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const wait = 20 * time.Second

// shard is one cell as the planner's neighbour: a stream, and a shard that takes
// exactly the next number, keeps outcomes by id, and can be deaf.
type shard struct {
	stream   uint64
	deaf     bool   // takes directives and answers nothing
	refuse   string // answers rules and notices with this
	rules    map[ids.CampaignID]*pb.CampaignRules
	applied  map[string]pb.AdjustmentOutcome
	last     map[core.BookKey]int64
	granted  map[core.BookKey]int64
	recorded []string          // ids of book changes that moved no unit
	log      []string          // directive ids in the order in which they came
	switches []*pb.CellSwitch  // what it was told of its switch, in order
	report   []core.StockFacts // what a report says
	// tells gives the shard's report of a SKU; nil: it reports nothing.
	tells func(s *shard, key core.BookKey) supply.Report
}

// soldOut is a report of a shard that sold everything it was granted.
func soldOut(s *shard, key core.BookKey) supply.Report {
	return supply.Report{
		Stock: core.StockFacts{
			Key: key, Granted: quantity.Must(s.granted[key]), Confirmed: quantity.Must(s.granted[key]), AdjustmentVersion: 1, LastNumber: s.last[key],
		},
		FenceVersion: 1, At: time.Now(),
	}
}

// has is a report of a shard with units available and a measured demand per minute.
func has(available, perMinute int64) func(*shard, core.BookKey) supply.Report {
	return func(s *shard, key core.BookKey) supply.Report {
		r := soldOut(s, key)
		r.Stock.Available, r.Stock.Confirmed = quantity.Must(available), quantity.Must(s.granted[key]-available)
		r.Rate = supply.Rate{Units: perMinute, Over: time.Minute}
		return r
	}
}

// cells is the fake hub: it behaves as a cell does, over the planner's own seam.
type cells struct {
	mu      sync.Mutex
	planner *planner.Planner
	shards  map[ids.CellID]*shard
	next    uint64
	answers sync.WaitGroup
	// paused, when set, is called by whoever asks for a report: it can hold a leader.
	paused func()
}

func (c *cells) hold(paused func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
}

// answerTo lets another planner hear the shards' answers.
func (c *cells) answerTo(p *planner.Planner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner = p
}

func newCells() *cells { return &cells{shards: map[ids.CellID]*shard{}} }

func (c *cells) connect(id ids.CellID) *shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	s := c.shards[id]
	if s == nil {
		s = &shard{rules: map[ids.CampaignID]*pb.CampaignRules{}, applied: map[string]pb.AdjustmentOutcome{}, last: map[core.BookKey]int64{}, granted: map[core.BookKey]int64{}}
		c.shards[id] = s
	}
	s.stream = c.next
	return s
}

func (c *cells) disconnect(id ids.CellID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shards[id].stream = 0
}

func (c *cells) set(id ids.CellID, change func(*shard)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.shards[id])
}

func (c *cells) read(id ids.CellID, look func(*shard)) { c.set(id, look) }

func (c *cells) Report(id ids.CellID, key core.BookKey) (supply.Report, bool) {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused != nil {
		paused()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shards[id]
	if s == nil || s.tells == nil {
		return supply.Report{}, false
	}
	return s.tells(s, key), true
}

func (c *cells) Reporter(id ids.CellID) (planner.Reporter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shards[id]
	if s == nil || s.stream == 0 {
		return planner.Reporter{}, false
	}
	return planner.Reporter{Instance: "p1", Stream: s.stream, FenceVersion: 1}, true
}

func (c *cells) Send(_ context.Context, id ids.CellID, stream uint64, d *pb.Directive) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shards[id]
	if s == nil || s.stream != stream {
		return planner.ErrNoReporter
	}
	if d.GetCellSwitch() != nil {
		s.switches = append(s.switches, d.GetCellSwitch())
	} else {
		s.log = append(s.log, d.GetDirectiveId())
	}
	result := s.take(d)
	if result == nil || s.deaf {
		return nil
	}
	asked := c.planner
	c.answers.Go(func() {
		_ = asked.OnDirectiveResult(context.Background(), id, planner.Reporter{Stream: stream}, result)
	})
	return nil
}

// take is the shard's transaction.
func (s *shard) take(d *pb.Directive) *pb.DirectiveResult {
	result := &pb.DirectiveResult{DirectiveId: d.GetDirectiveId(), Done: true}
	if d.GetCellSwitch() != nil {
		return result
	}
	if d.GetMirrorRebuild() != nil {
		result.Detail = s.refuse
		return result
	}
	if r := d.GetRules(); r != nil {
		if result.Detail = s.refuse; s.refuse == "" {
			s.rules[ids.CampaignID(r.GetSpec().GetCampaignId())] = r
		}
		return result
	}
	if n := d.GetBookNotice(); n != nil {
		if result.Detail = s.refuse; s.refuse == "" {
			s.recorded = append(s.recorded, n.GetBookRecordId())
		}
		return result
	}
	a := d.GetAdjustment()
	key := core.BookKey{Campaign: ids.CampaignID(a.GetCampaignId()), SKU: ids.SKUID(a.GetSkuId())}
	if outcome, known := s.applied[a.GetAdjustmentId()]; known {
		result.Outcome = outcome
		return result
	}
	if s.rules[key.Campaign] == nil || a.GetNumber() != s.last[key]+1 {
		return nil // not now
	}
	s.last[key]++
	if a.GetVoid() {
		s.applied[a.GetAdjustmentId()], result.Outcome = pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_VOIDED, pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_VOIDED
		return result
	}
	if a.GetKind() == pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN {
		s.granted[key] -= int64(a.GetUnits())
	} else {
		s.granted[key] += int64(a.GetUnits())
	}
	s.applied[a.GetAdjustmentId()] = pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED
	result.Outcome = pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED
	return result
}

// Facts is what the shard says in a report; none before tell.
func (c *cells) Facts(id ids.CellID) (planner.Shard, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shards[id]
	if s == nil || s.stream == 0 || len(s.report) == 0 {
		return planner.Shard{}, false
	}
	return planner.Shard{Cell: id, FenceVersion: 1, Stocks: s.report}, true
}

func (c *cells) CampaignReady(campaign ids.CampaignID, version int64, of []ids.CellID) (missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range of {
		if s := c.shards[id]; s == nil || s.stream == 0 || s.rules[campaign].GetVersion() < version {
			missing = append(missing, string(id))
		}
	}
	return missing
}

// edges is the fake of the routes stream.
type edges struct {
	mu     sync.Mutex
	behind []string
}

func (e *edges) Behind(context.Context, ids.CampaignID, int64) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.behind)
}

// operations remembers what it was asked to drive.
type operations struct {
	mu     sync.Mutex
	asked  map[string]int
	driver planner.Operations // nil: nobody does anything
}

func (o *operations) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	o.mu.Lock()
	o.asked[op.ID]++
	driver := o.driver
	o.mu.Unlock()
	if driver == nil {
		return nil
	}
	return driver.Step(ctx, leader, op)
}

func (o *operations) drive(by planner.Operations) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.driver = by
}

// rig is a planner over a real etcd, with cells that behave.
type rig struct {
	held       held
	t          testing.TB
	etcd       *testkit.EtcdCluster
	store      *store.Store
	view       *view.View
	intent     *intent.Service
	cells      *cells
	edges      *edges
	operations *operations
	witness    *witness
	planner    *planner.Planner
	leader     core.Leader
	lease      int64 // the leader's
	stopLead   func()
	pace       planner.Config
	log        *slog.Logger // nil: nobody reads it
}

type noShards struct{}

func (noShards) Install(context.Context, core.CellSpec) (int64, error) { return 1, nil }
func (noShards) Held(context.Context, core.CellSpec) (int64, error)    { return 1, nil }
func (noShards) Ensure(context.Context, core.KafkaSpec) error          { return nil }

// held is what findings hold: cell → why.
type held struct{ sync.Map }

func (h *held) Why(cell ids.CellID, _ core.BookKey) string {
	why, _ := h.Load(cell)
	text, _ := why.(string)
	return text
}

func newRig(t testing.TB) *rig { t.Helper(); return newPacedRig(t, 20*time.Millisecond) }

func newPacedRig(t testing.TB, interval time.Duration) *rig {
	t.Helper()
	return newRigWith(t, planner.Config{Interval: interval})
}

func newRigWith(t testing.TB, pace planner.Config) *rig {
	t.Helper()
	pace.AckTimeout, pace.ResendAfter = time.Minute, 100*time.Millisecond
	r := &rig{t: t, pace: pace, etcd: testkit.Etcd(t, 1), cells: newCells(), edges: &edges{}, operations: &operations{asked: map[string]int{}}}
	r.store = r.open()
	r.view, r.planner = r.follow(r.store)
	r.intent = &intent.Service{Store: r.store, View: r.view, Clock: clock.System(), Shards: noShards{}, Topics: noShards{}}
	r.cells.planner = r.planner
	t.Cleanup(r.cells.answers.Wait)
	return r
}

func (r *rig) open() *store.Store {
	r.t.Helper()
	s, err := store.Open(store.Config{Endpoints: r.etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

// follow makes a view that runs and a planner beside it.
func (r *rig) follow(s *store.Store) (*view.View, *planner.Planner) {
	r.t.Helper()
	v, err := view.New(s, view.Deps{Clock: clock.System()})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-done })
	d := planner.Deps{Store: s, View: v, Cells: r.cells, Edges: r.edges, Operations: r.operations, Freezes: &r.held, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
	if r.log != nil {
		d.Log = r.log
	}
	if r.witness != nil {
		d.Witness = r.witness
	}
	return v, planner.New(r.pace, d)
}

// another replaces the process by one that remembers nothing.
func (r *rig) another() (*view.View, *planner.Planner) {
	r.t.Helper()
	r.stopLead()
	r.store = r.open()
	v, p := r.follow(r.store)
	r.intent = &intent.Service{Store: r.store, View: v, Clock: clock.System(), Shards: noShards{}, Topics: noShards{}}
	r.cells.mu.Lock()
	r.cells.planner = p
	r.cells.mu.Unlock()
	return v, p
}

func topUpOf(id, campaign, sku string, cell ids.CellID, units int64) intent.TopUp {
	return intent.TopUp{AdjustmentID: id, Key: core.BookKey{Campaign: ids.CampaignID(campaign), SKU: ids.SKUID(sku)}, Cell: cell, Units: quantity.Must(units)}
}

// lead makes the planner lead under a new term; the one before is over.
func (r *rig) lead() {
	r.t.Helper()
	if r.stopLead != nil {
		r.stopLead()
	}
	ctx := testkit.Deadline(r.t)
	lease, err := r.store.GrantLease(ctx, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	r.lease = lease
	if r.leader, err = r.store.TakeLead(ctx, lease, "here", ids.NewOperationID()); err != nil {
		r.t.Fatal(err)
	}
	loop, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.planner.Lead(loop, r.leader) }()
	var once sync.Once
	r.stopLead = func() {
		once.Do(func() {
			cancel()
			<-done
			_ = r.store.RevokeLease(context.Background(), lease)
		})
	}
	r.t.Cleanup(r.stopLead)
}

// link connects a cell and says what its shard knows.
func (r *rig) link(id ids.CellID) {
	r.t.Helper()
	s := r.cells.connect(id)
	r.alive(id)
	testkit.Eventually(r.t, wait, func() error { return r.raise(id, s.stream) })
}

// alive registers the cell's process under a lease; without one the cell is SUSPECT.
func (r *rig) alive(id ids.CellID) {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	lease, err := r.store.GrantLease(ctx, time.Minute)
	if err == nil {
		_, err = r.store.Register(ctx, r.leader, core.Instance{Cell: id, ID: "p1", Group: "a", Lease: lease}, func(core.Cell) error { return nil })
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) raise(id ids.CellID, stream uint64) error {
	m := &pb.TermRaised{Term: convert.Term(r.leader.Term), FenceVersion: 1, FenceState: pb.FenceState_FENCE_STATE_ACTIVE}
	r.cells.read(id, func(s *shard) {
		for _, key := range slices.SortedFunc(maps.Keys(s.last), func(a, b core.BookKey) int { return len(a.String()) - len(b.String()) }) {
			m.Stocks = append(m.Stocks, &pb.StockFacts{
				CampaignId: string(key.Campaign), SkuId: string(key.SKU), Granted: int32(s.granted[key]), Available: int32(s.granted[key]), AdjustmentVersion: 1, LastNumber: s.last[key],
			})
		}
	})
	return r.planner.OnTermRaised(testkit.Deadline(r.t), id, planner.Reporter{Stream: stream}, m)
}

var who = intent.Caller{Name: "me", Method: "test"}

// cellSpec is cell.yaml of cell-n.
func cellSpec(n int) core.CellSpec {
	return core.CellSpec{
		ID: ids.CellID(fmt.Sprintf("cell-%d", n)), Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: fmt.Sprint("t", n), Partitions: 1, Replication: 1},
		Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: fmt.Sprint("f", n)},
	}
}

func (r *rig) provision(n int) {
	r.t.Helper()
	for i := range n {
		if _, err := r.intent.ProvisionCell(testkit.Deadline(r.t), who, cellSpec(i+1), "provision", false); err != nil {
			r.t.Fatal(err)
		}
	}
}

// draft keeps a campaign of 10,000 units per SKU over n cells.
func (r *rig) draft(id string, n int, skus ...string) core.Campaign {
	r.t.Helper()
	return r.draftAs(id, n, func(*core.SKUSpec) {}, skus...)
}

// draftAs keeps one whose SKUs are changed first.
func (r *rig) draftAs(id string, n int, change func(*core.SKUSpec), skus ...string) core.Campaign {
	r.t.Helper()
	open := time.Now().Add(-time.Minute)
	spec := core.CampaignSpec{
		ID: ids.CampaignID(id), OpenAt: open, CloseAt: open.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
		HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
		Permits: core.PermitRules{ClaimFrom: open, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second},
	}
	for i := range n {
		spec.Cells = append(spec.Cells, ids.CellID(fmt.Sprintf("cell-%d", i+1)))
	}
	for _, sku := range skus {
		spec.SKUs = append(spec.SKUs, core.SKUSpec{
			ID: ids.SKUID(sku), PhysicalStock: quantity.Must(12_000), SaleLimit: quantity.Must(10_000), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "EUR"},
			Reserve: quantity.Must(400), Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
		})
	}
	for i := range spec.SKUs {
		change(&spec.SKUs[i])
	}
	c, _, err := r.intent.CreateCampaign(testkit.Deadline(r.t), who, spec, "create-"+id, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) publish(id, op string) {
	r.t.Helper()
	if _, err := r.intent.PublishCampaign(testkit.Deadline(r.t), who, ids.CampaignID(id), op, 0, false); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for an operation's state.
func (r *rig) until(op string, want core.OperationState) core.Operation {
	r.t.Helper()
	return r.untilWithin(op, want, wait)
}

func (r *rig) untilWithin(op string, want core.OperationState, within time.Duration) core.Operation {
	r.t.Helper()
	var last core.Operation
	testkit.Eventually(r.t, within, func() error {
		last, _ = r.view.Snapshot().Operation(op)
		if last.State != want {
			return fmt.Errorf("operation %s is %s at %s: %s", op, last.State, last.Step, last.Detail)
		}
		return nil
	})
	return last
}

// at waits until an operation waits at a step.
func (r *rig) at(op, step string) {
	r.t.Helper()
	testkit.Eventually(r.t, wait, func() error {
		last, _ := r.view.Snapshot().Operation(op)
		if last.Step != step || last.Detail == "" {
			return fmt.Errorf("operation %s is %s at %s: %s", op, last.State, last.Step, last.Detail)
		}
		return nil
	})
}

// restored waits until the record stands that etcd lost its past.
func (r *rig) restored() core.Restored {
	r.t.Helper()
	var found core.Restored
	testkit.Eventually(r.t, wait, func() error {
		var stands bool
		if found, stands = r.view.Snapshot().Restored(); !stands {
			return fmt.Errorf("no record; the planner says %q", r.planner.Restored())
		}
		return nil
	})
	return found
}

func (r *rig) tryTopUp(id string, cell ids.CellID, units int64) (store.Moved, error) {
	return r.intent.TopUp(testkit.Deadline(r.t), who, intent.TopUp{AdjustmentID: id, Key: core.BookKey{Campaign: "c", SKU: "s"}, Cell: cell, Units: quantity.Must(units)}, false)
}

func (r *rig) topUp(id string, cell ids.CellID, units int64) store.Moved {
	r.t.Helper()
	moved, err := r.intent.TopUp(testkit.Deadline(r.t), who, intent.TopUp{AdjustmentID: id, Key: core.BookKey{Campaign: "c", SKU: "s"}, Cell: cell, Units: quantity.Must(units)}, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return moved
}

// settled waits until an adjustment has its last state.
func (r *rig) settled(id string) core.Adjustment {
	r.t.Helper()
	var a core.Adjustment
	testkit.Eventually(r.t, wait, func() error {
		rec, known := r.view.Snapshot().RecordOf(id)
		if !known {
			return fmt.Errorf("no record of %s", id)
		}
		if a = rec.Adjustments[rec.Find(id)]; a.Open() {
			return fmt.Errorf("%s is %s", id, a.State)
		}
		return nil
	})
	return a
}
