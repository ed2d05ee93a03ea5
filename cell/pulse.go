package cell

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/cell/link"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	pulseEvery   = time.Second
	pulseTimeout = 3 * time.Second
	pulseRest    = 50 * time.Millisecond // least time between two beats, however often somebody doubts
	keysEvery    = 5                     // beats between two readings of the key files
)

// fenceStore is the shard as the pulse needs it; *shard.Store is one.
type fenceStore interface {
	Heartbeat(ctx context.Context) error
	ReadFence(ctx context.Context) (shard.Fence, error)
	Writer() (shard.Writer, bool)
	DropWriter()
}

// pulse beats once a second: it tells the shard that it could be written, and looks whether this
// process may still write. A process that slept through its fence learns it here even when nobody
// asks it for anything (K01).
type pulse struct {
	store    fenceStore
	standing *link.Standing
	bell     *link.Bell
	keys     []*signed.Ring
	clock    clock.Clock
	log      *slog.Logger

	doubt chan struct{} // of room one
	fault atomic.Pointer[string]
}

func newPulse(store fenceStore, standing *link.Standing, bell *link.Bell, keys []*signed.Ring, c clock.Clock, log *slog.Logger) *pulse {
	p := &pulse{store: store, standing: standing, bell: bell, keys: keys, clock: c, log: log, doubt: make(chan struct{}, 1)}
	p.note("not read yet")
	return p
}

// now asks for a beat at once. It never blocks.
func (p *pulse) now() {
	select {
	case p.doubt <- struct{}{}:
	default:
	}
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) error {
	tick := p.clock.NewTicker(pulseEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		p.beat(ctx)
		if n%keysEvery == keysEvery-1 {
			p.reload()
		}
		if p.clock.Sleep(ctx, pulseRest) != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		case <-p.doubt:
		}
	}
}

// beat looks at the fence row first: a writer that it contradicts is dropped before it writes.
func (p *pulse) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	fence, err := p.store.ReadFence(ctx)
	if err != nil {
		p.note(err.Error())
		return
	}
	p.standing.SawFence(fence)
	w, ok := p.store.Writer()
	if ok && (fence.Version > w.FenceVersion || fence.InstanceGroup != w.Group) {
		p.log.Warn("the shard has another writer now", telemetry.Event, "writer_superseded", telemetry.FenceVersion, fence.Version,
			"held", w.FenceVersion, "group", fence.InstanceGroup)
		p.store.DropWriter()
		p.bell.Ring()
		ok = false
	}
	if !ok || fence.State == shard.Fenced {
		p.note("")
		return
	}
	if err := p.store.Heartbeat(ctx); err != nil && !errors.Is(err, shard.ErrNoWriter) && !errors.Is(err, shard.ErrFenced) {
		p.note("cannot be written: " + err.Error())
		return
	}
	p.note("")
}

// note records what is wrong with the shard; "": nothing.
func (p *pulse) note(fault string) { p.fault.Store(&fault) }

// shardFault is what is wrong with the shard, in words; "": nothing.
func (p *pulse) shardFault() string { return *p.fault.Load() }

// reload reads the key files again; keys that cannot be read stay as they were.
func (p *pulse) reload() {
	for _, k := range p.keys {
		if err := k.Reload(); err != nil {
			p.log.Error("keys not read again", telemetry.Event, "keys_reload_failed", telemetry.Error, err.Error())
		}
	}
}
