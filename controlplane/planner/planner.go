package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Config paces the loop.
type Config struct {
	// Interval between ticks when nothing happens.
	Interval time.Duration
	// AckTimeout is how long a publish waits for an edge that is connected but does
	// not acknowledge; after it the publish goes on and names the edge.
	AckTimeout time.Duration
	// ResendAfter is when a directive without an answer is sent again over the same
	// stream; 0: 2 s.
	ResendAfter time.Duration
	// ReportStaleAfter is the age of a report from which its cell is left alone by
	// AUTO top-ups and rebalances; 0: 5 s.
	ReportStaleAfter time.Duration
	// RebalanceEvery is the least time between two AUTO rebalances of one SKU; 0: 10 s.
	RebalanceEvery time.Duration
	// RebalanceHorizon is how far ahead a cell's need is counted; 0: 1 min.
	RebalanceHorizon time.Duration
}

func (c Config) withDefaults() Config {
	for at, fallback := range map[*time.Duration]time.Duration{
		&c.ResendAfter: 2 * time.Second, &c.ReportStaleAfter: 5 * time.Second, &c.RebalanceEvery: 10 * time.Second, &c.RebalanceHorizon: time.Minute,
	} {
		if *at == 0 {
			*at = fallback
		}
	}
	return c
}

const (
	// breath between two ticks that changes ask for, so that a burst is one tick.
	breath = 5 * time.Millisecond
	// stepTime bounds one step of one operation.
	stepTime = 30 * time.Second
)

// Planner is the leader's loop. Make it with New; Lead runs it.
type Planner struct {
	cfg        Config
	store      *store.Store
	view       *view.View
	cells      Cells
	edges      Edges
	operations Operations
	witness    Witness
	freezes    Freezes
	clock      clock.Clock
	log        *slog.Logger
	wake       chan struct{}
	settler    *settler

	mu     sync.Mutex
	memory memory
}

// Deps are what a planner is given; all are required.
type Deps struct {
	Store      *store.Store
	View       *view.View
	Cells      Cells
	Edges      Edges
	Operations Operations
	Witness    Witness // nil: a silent cell is waited for
	Freezes    Freezes // nil: nothing is held
	Clock      clock.Clock
	Log        *slog.Logger
}

// New makes a planner; it does nothing before Lead.
func New(cfg Config, d Deps) *Planner {
	return &Planner{
		cfg: cfg.withDefaults(), store: d.Store, view: d.View, cells: d.Cells, edges: d.Edges, operations: d.Operations, witness: d.Witness, freezes: d.Freezes,
		clock: d.Clock, log: d.Log, wake: make(chan struct{}, 1), settler: newSettler(d.Store), memory: newMemory(core.Leader{}),
	}
}

// Lead runs the loop under one leadership until ctx ends.
func (p *Planner) Lead(ctx context.Context, leader core.Leader) error {
	head, err := p.store.Head(ctx)
	if err != nil {
		return err
	}
	s, err := p.view.WaitFor(ctx, head) // nothing is decided on a view from before this term
	if err != nil {
		return err
	}
	p.begin(leader)
	defer p.begin(core.Leader{})
	if _, stands := s.Restored(); stands {
		return p.waitForRecovery(ctx, leader)
	}
	unbroken := p.unbroken(ctx, s)
	p.mu.Lock()
	p.memory.unbroken = unbroken
	p.mu.Unlock()
	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error {
		return p.every(ctx, p.wake, func(ctx context.Context) error { return p.tick(ctx, leader) })
	})
	loops.Go(func() error {
		crew := newCrew(make(chan struct{}, 1))
		defer crew.steps.Wait()
		return p.every(ctx, crew.wake, func(ctx context.Context) error { p.operate(ctx, leader, crew); return nil })
	})
	if p.witness != nil {
		loops.Go(func() error {
			return p.every(ctx, nil, func(ctx context.Context) error { return p.witnessAll(ctx, leader) })
		})
	}
	loops.Go(func() error { return p.paced(ctx, func(ctx context.Context) { p.supply(ctx, leader) }) })
	return loops.Wait()
}

// every runs one pass at each interval, change of the view or wake, until one
// says that the leadership is over.
func (p *Planner) every(ctx context.Context, wake <-chan struct{}, pass func(context.Context) error) error {
	tick := p.clock.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	for {
		changed := p.view.Changed()
		if err := pass(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		case <-changed:
		case <-wake:
		}
		if err := p.clock.Sleep(ctx, breath); err != nil {
			return err
		}
	}
}

// paced runs one pass at each interval, whatever happens between.
func (p *Planner) paced(ctx context.Context, pass func(context.Context)) error {
	tick := p.clock.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
			pass(ctx)
		}
	}
}

// Wake asks for a tick soon: a stream came, an answer was booked, an edge
// acknowledged.
func (p *Planner) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// tick is one pass over a snapshot, in the order of the package comment.
func (p *Planner) tick(ctx context.Context, leader core.Leader) error {
	s := p.view.Snapshot()
	p.compareReports(ctx)
	if err := p.intact(ctx, leader, s); err != nil {
		return err
	}
	p.sayCompared(ctx, leader, s)
	p.closeOver(ctx, leader, s) // 1. close
	p.publish(ctx, leader, s)   // 2. publish
	p.join(ctx, leader, s)      // 3. join
	p.sendSwitches(ctx, leader, s)
	p.sendRebuilds(ctx, leader, s)
	p.sendRules(ctx, leader, s) // 4. rules
	p.sendOpen(ctx, leader, s)  // 5. adjust
	p.sendNotices(ctx, leader, s)
	return nil
}

// closeOver closes the campaigns whose window is over. The cells judge by their
// own clocks; this makes the state say so.
func (p *Planner) closeOver(ctx context.Context, leader core.Leader, s view.Snapshot) {
	now := p.clock.Now()
	for _, c := range s.Campaigns() {
		if (c.State != core.CampaignPublished && c.State != core.CampaignPaused) || now.Before(c.Spec.CloseAt) {
			continue
		}
		_, err := p.store.Update(ctx, "close "+string(c.Spec.ID), func(tx *store.Tx) error {
			if err := tx.Lead(leader); err != nil {
				return err
			}
			present, known, err := tx.Campaign(c.Spec.ID)
			if err != nil || !known || now.Before(present.Spec.CloseAt) {
				return err
			}
			next, changed, err := present.Step(core.EventClose)
			if err != nil || !changed {
				return nil //nolint:nilerr // somebody moved it meanwhile
			}
			return errors.Join(tx.PutCampaign(next), tx.Audit(core.Audit{Actor: actor, Method: actor, Subject: "campaign " + string(c.Spec.ID), Reason: "close_at has passed"}))
		})
		p.note(ctx, err, "campaign was not closed", telemetry.CampaignID, c.Spec.ID)
	}
}

// actor names the loop in records.
const actor = "planner"

// note logs an error of one step; the next tick tries again. Losing the lead or
// the process's end is no news.
func (p *Planner) note(ctx context.Context, err error, what string, fields ...any) {
	if err == nil || ctx.Err() != nil || errors.Is(err, core.ErrNotLeader) || errors.Is(err, ErrNoReporter) || errors.Is(err, errMoved) {
		return
	}
	p.log.WarnContext(ctx, what, append(append(fields, telemetry.Event, "planner_step_failed"), telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
}

func (p *Planner) begin(leader core.Leader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory = newMemory(leader)
	p.memory.began = p.clock.Now()
}

func few(texts []string) string {
	const most = 5
	if len(texts) <= most {
		return fmt.Sprint(texts)
	}
	return fmt.Sprintf("%v and %d more", texts[:most], len(texts)-most)
}
