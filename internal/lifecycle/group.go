package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Group is the owner of a set of named goroutines and of the hooks that take
// them down. Make one with New; end it with Wait, exactly once.
type Group struct {
	log      *slog.Logger
	parent   context.Context
	ctx      context.Context
	cancel   context.CancelFunc
	stopping chan struct{}

	mu      sync.Mutex
	begun   bool           // shutdown has begun; stopping is closed
	closed  bool           // no new member is taken
	running map[string]int // members by name
	quiet   chan struct{}  // closed when closed and nobody runs
	hooks   []hook
	errs    []error
}

type hook struct {
	name string
	run  func(context.Context) error
}

// New returns an empty group that begins its shutdown when ctx ends. The
// members' context keeps ctx's values but ends later than ctx: after the hooks.
func New(ctx context.Context, log *slog.Logger) *Group {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &Group{
		log: log, parent: ctx, ctx: inner, cancel: cancel,
		stopping: make(chan struct{}),
		running:  map[string]int{},
		quiet:    make(chan struct{}),
	}
}

// Context is the context members run under: it ends when the hooks are done.
func (g *Group) Context() context.Context { return g.ctx }

// Stopping is closed when the shutdown begins, before the first hook. Readiness
// probes turn red on it and long-lived streams end on it.
func (g *Group) Stopping() <-chan struct{} { return g.stopping }

// Go starts a member. When fn returns an error, or panics, the whole group
// shuts down and Wait returns that error under the member's name; nil means the
// member's work is done, and so does context.Canceled once its context has
// ended. After the members' context has ended no member is started: that is
// logged, and fn is not called.
func (g *Group) Go(name string, fn func(context.Context) error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		g.log.Warn("member not started: the group has stopped", "event", "lifecycle_member_refused", "member", name)
		return
	}
	g.running[name]++
	g.mu.Unlock()
	go func() {
		err := g.call(name, fn)
		g.leave(name, err)
	}()
}

// OnStop registers a hook for the shutdown. Its context ends when three
// quarters of the grace are used up; an error or a panic is part of what Wait
// returns and does not keep the other hooks from running. A hook registered
// after the hooks have begun is not run.
func (g *Group) OnStop(name string, fn func(context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hooks = append(g.hooks, hook{name, fn})
}

// Wait blocks until the parent context ends or a member fails, then shuts down
// within grace. It returns nil when nobody failed and everybody stopped in
// time; else every failure, joined, each with the name it belongs to.
func (g *Group) Wait(grace time.Duration) error {
	select {
	case <-g.parent.Done():
		g.begin()
	case <-g.stopping:
	}
	g.log.Info("stopping", "event", "lifecycle_stopping", "grace", grace.String())
	deadline, cancel := context.WithTimeout(context.WithoutCancel(g.ctx), grace)
	defer cancel()
	g.runHooks(grace - grace/4)
	g.close()
	select {
	case <-g.quiet:
	case <-deadline.Done():
		g.reportStuck(grace)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}

// begin marks the start of the shutdown; later calls change nothing.
func (g *Group) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.begun {
		g.begun = true
		close(g.stopping)
	}
}

// close ends the members' context and takes no new member.
func (g *Group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.cancel()
	if len(g.running) == 0 {
		close(g.quiet)
	}
}

func (g *Group) runHooks(budget time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.ctx), budget)
	defer cancel()
	g.mu.Lock()
	hooks := slices.Clone(g.hooks)
	g.mu.Unlock()
	for _, h := range slices.Backward(hooks) {
		g.runHook(ctx, h)
	}
}

// runHook waits for one hook no longer than ctx allows: a hook that ignores its
// context is left behind as a member, so that Wait still knows its name.
func (g *Group) runHook(ctx context.Context, h hook) {
	done := make(chan struct{})
	g.Go("stop:"+h.name, func(context.Context) error {
		defer close(done)
		return h.run(ctx)
	})
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		default:
			g.log.Warn("stop hook exceeded its share of the grace", "event", "lifecycle_hook_late", "hook", h.name)
		}
	}
}

// call runs fn and turns a panic into an error.
func (g *Group) call(name string, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("member panicked", "event", "lifecycle_panic", "member", name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn(g.ctx)
}

func (g *Group) leave(name string, err error) {
	stopped := g.ctx.Err() != nil && errors.Is(err, context.Canceled)
	failed := err != nil && !stopped
	if failed {
		g.log.Error("member failed", "event", "lifecycle_member_failed", "member", name, "error", err)
	}
	g.mu.Lock()
	if failed {
		g.errs = append(g.errs, fmt.Errorf("%s: %w", name, err))
	}
	g.running[name]--
	if g.running[name] == 0 {
		delete(g.running, name)
	}
	if g.closed && len(g.running) == 0 {
		close(g.quiet)
	}
	g.mu.Unlock()
	if failed {
		g.begin()
	}
}

// ErrStuck is wrapped by what Wait returns when a member did not stop in time.
var ErrStuck = errors.New("still running after the shutdown grace")

func (g *Group) reportStuck(grace time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := make([]string, 0, len(g.running))
	for name := range g.running {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > 0 {
		g.errs = append(g.errs, fmt.Errorf("%q %w of %s", names, ErrStuck, grace))
	}
}
