package keeper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/gate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Place is one SKU of one mirror with the rules of its gate.
type Place struct {
	Scope  admission.Scope
	SKU    ids.SKUID
	Rules  gate.Rules
	Final  bool // FINAL_SOLD_OUT by the control plane
	Paused bool // by an operator, or the campaign is not selling
	// Why an operator paused the whole cell; "" where it is not, or no reason is known.
	Why string
}

// Signals are what this process measures of its dependencies.
type Signals struct {
	Halt        string // a dependency at fault, in words; "" when none is
	FailureRate float64
	LockWait    time.Duration
}

// Mirror is the mirror as the driver needs it.
type Mirror interface {
	Expected(scope admission.Scope) (ids.Build, bool)
	Facts(ctx context.Context, scope admission.Scope, sku ids.SKUID) (admission.Facts, error)
	SetGate(ctx context.Context, scope admission.Scope, build ids.Build, g admission.Gate) (admission.Change, error)
}

// View is one SKU's gate with its inputs, for operators and reports.
type View struct {
	Place Place
	Gate  gate.Gate
	Facts admission.Facts // of the last look that could be taken
	Rate  float64         // outcomes per second used, never below the floor
}

// Deps of a Driver.
type Deps struct {
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
	// Places names the SKUs at each look.
	Places func() []Place
	// Signals of this process; nil: none.
	Signals func() Signals
	// Leads: this process writes the gates. One process should; two that do disagree
	// for some looks while one of them ramps up, which harms nothing. nil: always.
	Leads func() bool
}

const defaultInterval = 200 * time.Millisecond

// Driver looks at every SKU, steps its gate and writes it into the mirror. A fault of
// this process alone pauses what this process admits (View) and is not written: the
// other processes of the cell may be well.
type Driver struct {
	mirror   Mirror
	interval time.Duration
	deps     Deps
	metrics  *metrics

	mu    sync.RWMutex
	gates map[placeKey]*kept
}

type placeKey struct {
	scope admission.Scope
	sku   ids.SKUID
}

// kept is what the driver remembers of one SKU.
type kept struct {
	view    View
	meter   gate.Meter
	written admission.Gate
	build   ids.Build // that written is of
}

// New makes a driver; interval 0 is 200 ms.
func New(interval time.Duration, mirror Mirror, deps Deps) (*Driver, error) {
	if interval <= 0 {
		interval = defaultInterval
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	return &Driver{mirror: mirror, interval: interval, deps: deps, metrics: m, gates: map[placeKey]*kept{}}, nil
}

// Run looks every interval until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	tick := d.deps.Clock.NewTicker(d.interval)
	defer tick.Stop()
	for {
		d.Look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Views lists every gate as this process sees it.
func (d *Driver) Views() []View {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]View, 0, len(d.gates))
	for _, k := range d.gates {
		out = append(out, k.view)
	}
	return out
}

// View is the gate of one SKU; false before the first look.
func (d *Driver) View(scope admission.Scope, sku ids.SKUID) (View, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	k, ok := d.gates[placeKey{scope, sku}]
	if !ok {
		return View{}, false
	}
	return k.view, true
}

// Look takes one look at every SKU.
func (d *Driver) Look(ctx context.Context) {
	places, signals := d.deps.Places(), Signals{}
	if d.deps.Signals != nil {
		signals = d.deps.Signals()
	}
	seen := make(map[placeKey]bool, len(places))
	for _, p := range places {
		key := placeKey{p.Scope, p.SKU}
		seen[key] = true
		d.lookAt(ctx, p, d.keep(key, p), signals)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, k := range d.gates {
		if !seen[key] {
			d.metrics.drop(k.view.Place)
			delete(d.gates, key)
		}
	}
}

func (d *Driver) keep(key placeKey, p Place) *kept {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, ok := d.gates[key]
	if !ok {
		k = &kept{view: View{Place: p, Gate: gate.New(p.Rules)}}
		d.gates[key] = k
	}
	return k
}

// lookAt: facts → inputs → step → write → show.
func (d *Driver) lookAt(ctx context.Context, p Place, k *kept, s Signals) {
	in := gate.Inputs{Final: p.Final, Halt: s.Halt, FailureRate: s.FailureRate, LockWait: s.LockWait}
	shared := s.Halt == "" // the verdict holds for every process of the cell
	if in.Halt == "" && p.Paused {
		in.Halt = "paused by an operator"
		if p.Why != "" {
			in.Halt += ": " + p.Why
		}
	}
	facts, build, ready := d.facts(ctx, p)
	if !ready && in.Halt == "" {
		in.Halt, shared = "the mirror is not ready", false
	}
	if ready {
		in.Rate = k.meter.Observe(gate.Sample{
			AtMS: facts.NowMS, Life: facts.Build.String(), Settled: facts.Admitted - facts.Outstanding, Outstanding: facts.Outstanding,
		})
		in.Stock, in.Outstanding = facts.Stock, facts.Outstanding
		in.OldestAge = time.Duration(facts.OldestAgeMS()) * time.Millisecond
	}
	g, err := gate.Advance(k.view.Gate, p.Rules, in)
	if err != nil {
		d.deps.Logger.Error("gate starts over", telemetry.Event, "gate_broken", telemetry.Error, err)
		g = gate.New(p.Rules)
	}
	d.show(p, k, g, facts, ready, max(in.Rate, p.Rules.MinRate))
	if ready && shared && (d.deps.Leads == nil || d.deps.Leads()) {
		d.write(ctx, p, k, build, g)
	}
}

// facts reads the mirror that this process admits into.
func (d *Driver) facts(ctx context.Context, p Place) (admission.Facts, ids.Build, bool) {
	build, ok := d.mirror.Expected(p.Scope)
	if !ok {
		return admission.Facts{}, ids.Build{}, false
	}
	f, err := d.mirror.Facts(ctx, p.Scope, p.SKU)
	if err != nil || !f.Present || f.Build != build || f.State != admission.Ready {
		return admission.Facts{}, ids.Build{}, false
	}
	return f, build, true
}

// show makes the new gate visible; the last facts stand while there are none.
func (d *Driver) show(p Place, k *kept, g gate.Gate, f admission.Facts, ready bool, rate float64) {
	d.mu.Lock()
	old := k.view.Gate
	k.view.Place, k.view.Gate, k.view.Rate = p, g, rate
	if ready {
		k.view.Facts = f
	}
	view := k.view
	d.mu.Unlock()
	d.metrics.show(view)
	if old.State != g.State {
		d.deps.Logger.Info("gate moved", telemetry.Event, "gate_moved", telemetry.CampaignID, string(p.Scope.Campaign),
			telemetry.SKUID, string(p.SKU), telemetry.OldState, old.State.String(), telemetry.NewState, g.State.String(), "cause", g.Cause,
			"bound", g.Bound)
	}
}

// write brings the gate into the mirror when it differs from what is there. A mirror
// of another build meanwhile takes nothing; the next look sees it.
func (d *Driver) write(ctx context.Context, p Place, k *kept, build ids.Build, g gate.Gate) {
	now := admission.Gate{SKU: p.SKU, State: cellquotav1.GateState(g.State), Bound: g.Bound}
	f := k.view.Facts
	if k.build == build && k.written == now && f.Gate == now.State && f.Bound == now.Bound {
		return
	}
	change, err := d.mirror.SetGate(ctx, p.Scope, build, now)
	if err == nil && change == admission.Applied {
		k.build, k.written = build, now
	}
}
