// Package election decides which replica leads: a leased key in etcd, and a term
// that grows with every leader, minted in the same transaction that takes the
// key.
//
// Promise: lead runs under a context that ends with the leadership: when the
// lease cannot be kept for its life, when it is gone, or when the process stops.
// That is a courtesy to the loops; what guards the records is that every write of
// a loop compares the leader's key (store.Tx.Lead), so a leader that was paused
// past its lease writes nothing.
//
// Neighbours: store takes the key; the view tells when it is vacant; planner and
// link run under the context.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Config of one replica.
type Config struct {
	// Address is where cells and clients reach this replica.
	Address string
	// TTL of the leader's lease: how long a dead leader blocks the next, at least 1 s.
	TTL time.Duration
}

// Election is one replica's part in it. Make it with New, run Run.
type Election struct {
	cfg   Config
	store *store.Store
	view  *view.View
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex
	leading bool
	leader  core.Leader
}

// New makes a replica's part; it does nothing before Run.
func New(cfg Config, s *store.Store, v *view.View, c clock.Clock, log *slog.Logger) *Election {
	return &Election{cfg: cfg, store: s, view: v, clock: c, log: log}
}

// Current gives the leadership that this replica holds; false while it follows.
func (e *Election) Current() (core.Leader, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader, e.leading
}

// Run takes the lead whenever it is vacant and calls lead under a context that
// ends with the leadership; it returns when ctx ends, and lead has. An error of
// lead ends the leadership, not Run.
func (e *Election) Run(ctx context.Context, lead func(context.Context, core.Leader) error) error {
	for ctx.Err() == nil {
		e.vacant(ctx)
		if err := e.term(ctx, lead); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "not leading", append([]any{telemetry.Event, "leadership_ended"}, telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
		}
		_ = e.clock.Sleep(ctx, e.cfg.TTL/20) // another one may have been faster; ends early with ctx
	}
	return nil
}

// vacant waits until the view shows nobody leading, for one TTL at most (a view
// that is stale must not keep a replica from trying), or until ctx ends.
func (e *Election) vacant(ctx context.Context) {
	timer := e.clock.NewTimer(e.cfg.TTL)
	defer timer.Stop()
	for {
		changed := e.view.Changed()
		s := e.view.Snapshot()
		if _, taken := s.Leader(); s.Revision() > 0 && !taken {
			return
		}
		select {
		case <-changed:
		case <-timer.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// term is one leadership: take, lead, keep, give up.
func (e *Election) term(ctx context.Context, lead func(context.Context, core.Leader) error) error {
	lease, err := e.store.GrantLease(ctx, e.cfg.TTL)
	if err != nil {
		return err
	}
	defer func() {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = e.store.RevokeLease(gone, lease) // it ends by itself otherwise
	}()
	leader, err := e.store.TakeLead(ctx, lease, e.cfg.Address, ids.NewOperationID())
	if err != nil {
		if errors.Is(err, core.ErrNotLeader) {
			return nil
		}
		return err
	}
	e.log.InfoContext(ctx, "leading", telemetry.Event, "leadership_taken", "term", leader.Term.Count, "address", leader.Address)
	e.set(leader, true)
	defer e.set(core.Leader{}, false)
	return e.hold(ctx, lease, leader, lead)
}

func (e *Election) set(l core.Leader, leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leader, e.leading = l, leading
}

// hold runs lead beside the keeping of the lease; whichever ends first ends both.
func (e *Election) hold(ctx context.Context, lease int64, leader core.Leader, lead func(context.Context, core.Leader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- lead(ctx, leader)
	}()
	kept := e.keep(ctx, lease, leader)
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		return errors.Join(err, kept)
	}
	return kept
}

// keep keeps the lease until ctx ends (nil) or the lead cannot be trusted any
// more: the lease is gone or was not kept for its life, or the view shows that the
// key is not ours although the lease lives (somebody deleted it).
func (e *Election) keep(ctx context.Context, lease int64, leader core.Leader) error {
	tick := e.clock.NewTicker(e.cfg.TTL / 4)
	defer tick.Stop()
	last := e.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		if s := e.view.Snapshot(); s.Revision() > leader.CreateRevision {
			if now, taken := s.Leader(); !taken || now.Term != leader.Term {
				return fmt.Errorf("%w: the key is not of term %d", core.ErrNotLeader, leader.Term.Count)
			}
		}
		began := e.clock.Now()
		_, err := e.store.KeepLease(ctx, lease)
		switch {
		case err == nil:
			last = began // its life counts from before the call
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrLeaseGone):
			return err
		case e.clock.Now().Sub(last) > e.cfg.TTL*3/4:
			return fmt.Errorf("the leader's lease was not kept for %s: %w", e.clock.Now().Sub(last), err)
		}
	}
}
