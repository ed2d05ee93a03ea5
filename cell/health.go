package cell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/gate/keeper"
	"github.com/cellquota/cellquota/internal/kafka"
	"github.com/cellquota/cellquota/internal/lifecycle"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
	rulesMaxAge  = 10 * time.Second
)

// health is what readyz, keep-alives and gates are told. Probes run in a loop of their own; asking
// never waits.
type health struct {
	p     *parts
	kafka *kgo.Client

	mu    sync.Mutex
	known map[string]string // of stores, by name

	lockWait atomic.Int64 // nanoseconds that somebody waited for a lock of the shard, at the last probe
}

func newHealth(p *parts) *health {
	return &health{p: p, known: map[string]string{"redis": "not asked yet", "kafka": "not asked yet"}}
}

// watchLog makes the client that asks the log whether it is there.
func (h *health) watchLog(group *lifecycle.Group) error {
	client, err := kafka.New(h.p.cfg.Kafka.Brokers, append(h.p.kafka, kgo.ClientID(events.ClientID(h.p.cell, "health")))...)
	if err != nil {
		return err
	}
	h.kafka = client
	closeLast(group, "kafka-health", client.Close)
	return nil
}

// run asks the stores until ctx ends.
func (h *health) run(ctx context.Context) error {
	tick := h.p.clock.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		h.probe(ctx, "redis", func(ctx context.Context) error { _, err := h.p.mirror.Server(ctx); return err })
		h.probe(ctx, "kafka", h.kafka.Ping)
		h.clocks(ctx)
		h.locks(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

func (h *health) probe(ctx context.Context, name string, ask func(context.Context) error) {
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := ask(within)
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, name)
	if err != nil {
		h.known[name] = err.Error()
	}
}

// locks asks the shard how long anybody has been waiting for a lock; one that does not answer is told by
// the pulse.
func (h *health) locks(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	wait, err := h.p.shard.LongestLockWait(within)
	if err != nil {
		wait = 0
	}
	h.lockWait.Store(int64(wait))
}

// signals are what the gates are driven by beside the mirror's own figures: what this process's order
// transactions met, and how long anybody in the shard waits for a lock, whichever process orders.
func (h *health) signals() keeper.Signals {
	met := h.p.shard.Pressure()
	return keeper.Signals{Halt: h.halt(), FailureRate: met.FailureRate, LockWait: max(met.LockWait, time.Duration(h.lockWait.Load()))}
}

// clocks compares this process's clock with its stores'. A store that does not answer is another
// fault's affair, and counts as in time: the other one is compared all the same.
func (h *health) clocks(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	redis, err1 := skewOf(within, h.p.clock, h.p.mirror.Now)
	shard, err2 := skewOf(within, h.p.clock, h.p.shard.Now)
	if err1 != nil && err2 != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, "clock")
	if fault := skewFault(h.p.cfg.MaxClockSkew, redis, shard); fault != "" {
		h.known["clock"] = fault
	}
}

// redis tells whether Redis answered this process when it was last asked.
func (h *health) redis() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known["redis"] == ""
}

// skewed tells whether the clocks differ too much for this process to judge anything by time.
func (h *health) skewed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known["clock"] != ""
}

// ready tells whether this process should get customers, and if not, why. A control plane that is gone
// is told and is no reason.
func (h *health) ready() (bool, map[string]string) {
	faults := h.reasons()
	ok := len(faults) == 0 || len(faults) == 1 && faults["keys"] != "" // the keys that it has go on
	if h.p.standing != nil {
		if linked, cause := h.p.standing.Linked(); !linked {
			faults["link"] = "no stream to the control plane: " + cause
		}
	}
	return ok, faults
}

// faults are the names of what is wrong, sorted.
func (h *health) faults() []string { return slices.Sorted(maps.Keys(h.reasons())) }

// reasons are the faults by name: shard, redis, kafka, clock, writer, keys, rules, mirrors.
func (h *health) reasons() map[string]string {
	if h.p.pulse == nil || h.p.mirrors == nil {
		return map[string]string{"shard": "not reached yet"}
	}
	h.mu.Lock()
	out := maps.Clone(h.known)
	h.mu.Unlock()
	if h.p.mirrors.directOnly() { // nothing here needs the two
		delete(out, "redis")
		delete(out, "kafka")
	}
	if fault := h.p.pulse.shardFault(); fault != "" {
		out["shard"] = fault
	}
	if _, ok := h.p.shard.Writer(); !ok {
		out["writer"] = "this process has no right to write"
	}
	if fault := h.p.keyFault(); fault != "" {
		out["keys"] = fault
	}
	if age, ok := h.p.rules.Ready(); !ok || age > rulesMaxAge {
		out["rules"] = "rules of campaigns were not read lately"
	}
	if faults := h.p.rules.Current().Faults(); len(faults) > 0 {
		out["rules"] = fmt.Sprintf("rules of %d campaigns cannot be read: %s", len(faults), faults[0])
	}
	for _, c := range h.p.rules.Current().All() {
		if c.State != pb.CampaignState_CAMPAIGN_STATE_PUBLISHED {
			continue
		}
		if ok, detail := h.p.mirrors.ready(c); !ok {
			out["mirrors"] = detail
			break
		}
	}
	return out
}

// halt is why nothing may be admitted by this process now; "": nothing stands against it. Redis speaks
// for itself, and a log that is away fills the gate.
func (h *health) halt() string {
	if fault := h.p.pulse.shardFault(); fault != "" {
		return "the shard: " + fault
	}
	return ""
}
