package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cellquota/cellquota/internal/clock"
)

const (
	// probeEvery paces the probe of a process that is not ready yet.
	probeEvery = 20 * time.Millisecond
	// probeTimeout bounds one probe.
	probeTimeout = 2 * time.Second
	// backOffFirst and backOffMost bound the wait before a restart.
	backOffFirst = 100 * time.Millisecond
	backOffMost  = 5 * time.Second
	// backOffForget is how long a process must have run for the next restart
	// to wait backOffFirst again.
	backOffForget = 10 * time.Second
)

// process drives one Spec through the table. Every field below mu is written
// under it; each run of the child has its own run value, so that what belongs
// to an earlier run (a late probe) is told apart.
type process struct {
	spec  Spec
	owner *Supervisor
	log   *slog.Logger
	clk   clock.Clock

	mu      sync.Mutex
	state   State
	run     *run
	pid     int
	starts  int
	exit    string        // how the last run ended
	failed  error         // why the last spawn gave no child
	changed chan struct{} // closed and replaced at each change
	waits   *backoff.ExponentialBackOff
}

// run is one life of the child.
type run struct {
	child *os.Process     // nil when it could not be started
	since time.Time       // when it was started
	ctx   context.Context // ends when the child has ended
	end   context.CancelFunc
}

func newProcess(spec Spec, owner *Supervisor) *process {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = backOffFirst, backOffMost
	return &process{
		spec: spec, owner: owner, clk: owner.clk,
		log:     owner.log.With("process", spec.Name),
		changed: make(chan struct{}), waits: waits,
	}
}

// apply takes one event through the table and carries out its effect. The
// signal is the one to send when the event is evHold.
func (p *process) apply(e event, signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applyLocked(e, signal)
}

func (p *process) applyLocked(e event, signal syscall.Signal) error {
	next, do := step(p.state, e)
	p.become(next)
	switch do {
	case fxSpawn:
		return p.spawnLocked()
	case fxBackOff:
		p.armLocked()
	case fxSignal:
		return p.signalLocked(signal)
	case fxNone:
	}
	return nil
}

// become moves to a state and wakes whoever waits for a change.
func (p *process) become(next State) {
	if p.state == next {
		return
	}
	p.log.Debug("state", "event", "process_state", "old_state", p.state.String(), "new_state", next.String())
	p.state = next
	close(p.changed)
	p.changed = make(chan struct{})
}

// spawnLocked starts the child and the goroutines that watch it. When it cannot
// be started, that is an end like any other.
func (p *process) spawnLocked() error {
	report := make(chan started, 1)
	r := &run{}
	r.ctx, r.end = context.WithCancel(context.Background())
	p.starts++
	p.owner.goroutines.Go(func() {
		exit := p.spec.runChild(report)
		p.ended(r, exit)
	})
	s := <-report
	p.failed = s.err
	p.run = r
	if s.err != nil {
		return s.err // ended follows from the goroutine
	}
	r.child, r.since, p.pid = s.child, p.clk.Now(), s.child.Pid
	p.log.Info("started", "event", "process_started", "pid", p.pid, "starts", p.starts)
	p.owner.goroutines.Go(func() { p.probe(r) })
	return nil
}

// ended is told by the child's goroutine that r is over.
func (p *process) ended(r *run, exit string) {
	defer p.owner.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exit = exit
	r.end()
	if r.child != nil && p.clk.Now().Sub(r.since) >= backOffForget {
		p.waits.Reset()
	}
	meant := p.state == Ending || p.state == Cycling
	e := evEnded
	if p.owner.restart.Load() && !meant {
		e = evDied
	}
	_ = p.applyLocked(e, 0) // a restart that cannot spawn comes back here
	level := slog.LevelWarn
	if meant {
		level = slog.LevelInfo
	}
	p.log.Log(context.Background(), level, "ended", "event", "process_ended",
		"pid", p.pid, "exit", exit, "new_state", p.state.String())
}

// armLocked brings evRetry after the back-off.
func (p *process) armLocked() {
	wait := p.waits.NextBackOff()
	timer := p.clk.NewTimer(wait)
	gone := p.changed
	p.owner.goroutines.Go(func() {
		defer timer.Stop()
		select {
		case <-gone: // started or held meanwhile
		case <-timer.C():
			if err := p.apply(evRetry, 0); err != nil {
				p.log.Warn("restart failed", "event", "process_restart_failed", "error", err.Error())
			}
			p.owner.onChange()
		}
	})
}

// probe asks until the child serves or is gone.
func (p *process) probe(r *run) {
	tick := p.clk.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if p.spec.Probe == nil || p.probeOnce(r.ctx) == nil {
			p.becomeReady(r)
			return
		}
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C():
		}
	}
}

func (p *process) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.spec.Probe(ctx)
}

// becomeReady applies evReady if r is still the present run.
func (p *process) becomeReady(r *run) {
	defer p.owner.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != r || r.ctx.Err() != nil {
		return
	}
	_ = p.applyLocked(evReady, 0) // has no effect that can fail
	p.log.Info("ready", "event", "process_ready", "pid", p.pid, "took", p.clk.Now().Sub(r.since).String())
}

// waitReady returns when the process is ready; an error when it is down, held
// or could not be started, with the end of its log. A process that waits for
// its restart is waited for.
func (p *process) waitReady(ctx context.Context) error {
	for {
		p.mu.Lock()
		state, changed, exit, failed := p.state, p.changed, p.exit, p.failed
		p.mu.Unlock()
		switch {
		case state == Ready:
			return nil
		case failed != nil && !state.Alive():
			return failed
		case state == Down || state == Held:
			return fmt.Errorf("%s ended before it was ready (%s); the end of %s:\n%s", p.spec.Name, exit, p.spec.Log, tail(p.spec.Log))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%s): %w; the end of %s:\n%s",
				p.spec.Name, state, context.Cause(ctx), p.spec.Log, tail(p.spec.Log))
		}
	}
}

// waitDown returns when no child exists.
func (p *process) waitDown(ctx context.Context) error {
	for {
		p.mu.Lock()
		alive, changed := p.state.Alive(), p.changed
		p.mu.Unlock()
		if !alive {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
