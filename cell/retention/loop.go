package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Store is the shard as this room needs it.
type Store interface {
	SettledCampaigns(ctx context.Context, after, replay time.Duration) ([]shard.Settled, error)
	ArchiveLedger(ctx context.Context, campaign ids.CampaignID, after time.Duration, page int) (shard.ArchiveStep, error)
	PruneInbox(ctx context.Context, campaign ids.CampaignID, replay time.Duration, page int, walk shard.InboxWalk) (shard.InboxWalk, error)
	LedgerParts(ctx context.Context) (int64, error)
	Writer() (shard.Writer, bool)
}

// Mirrors discards the mirrors of a campaign; admission.Client does, scope by scope.
type Mirrors interface {
	Discard(ctx context.Context, scope admission.Scope) (int64, error)
}

// Config paces the loop. Zero values are the defaults.
type Config struct {
	ArchiveAfter time.Duration // after SETTLED; 0: 24 h
	Replay       time.Duration // how long a message can be replayed; 0: 168 h
	Interval     time.Duration // between looks; 0: 1 m
	Page         int           // entries or rows of one transaction; 0: 5,000
}

// pages bounds what one look does with one campaign; the next look goes on.
const pages = 200

// Deps of the loop.
type Deps struct {
	Store   Store
	Mirrors Mirrors
	// Scopes lists the mirrors that a campaign had.
	Scopes   func(ids.CampaignID) []admission.Scope
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
}

// Loop archives and prunes. Make it with New.
type Loop struct {
	cfg     Config
	deps    Deps
	metrics metrics
}

// New makes the loop. The error is that of registering its metrics.
func New(cfg Config, deps Deps) (*Loop, error) {
	if cfg.ArchiveAfter <= 0 {
		cfg.ArchiveAfter = 24 * time.Hour
	}
	if cfg.Replay <= 0 {
		cfg.Replay = 168 * time.Hour
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Minute
	}
	if cfg.Page <= 0 {
		cfg.Page = 5_000
	}
	l := &Loop{cfg: cfg, deps: deps, metrics: newMetrics()}
	return l, l.metrics.register(deps.Registry)
}

// Run looks once an interval until ctx ends. What fails is tried again at the next look.
func (l *Loop) Run(ctx context.Context) error {
	tick := l.deps.Clock.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	for {
		if err := l.Once(ctx); err != nil && ctx.Err() == nil && !shard.MayNotWrite(err) {
			l.deps.Log.WarnContext(ctx, "a settled campaign was not archived or pruned", telemetry.Event, "retention_failed", telemetry.Error, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Once is one look, in numbered steps. One campaign that fails holds up no other.
func (l *Loop) Once(ctx context.Context) error {
	if _, ok := l.deps.Store.Writer(); !ok {
		return nil // another process archives
	}
	due, err := l.deps.Store.SettledCampaigns(ctx, l.cfg.ArchiveAfter, l.cfg.Replay) // 1. what is due
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range due {
		if c.Archived {
			failed = append(failed, l.prune(ctx, c.Campaign)) // 2. inbox
		} else {
			failed = append(failed, l.archive(ctx, c.Campaign)) // 3. mirror and ledger
		}
	}
	if parts, err := l.deps.Store.LedgerParts(ctx); err == nil {
		l.metrics.parts.Set(float64(parts))
	}
	return errors.Join(failed...)
}

// archive discards the mirrors, and then moves the ledger, as far as one look goes.
func (l *Loop) archive(ctx context.Context, campaign ids.CampaignID) error {
	for _, scope := range l.deps.Scopes(campaign) {
		gone, err := l.deps.Mirrors.Discard(ctx, scope)
		l.metrics.keys.Add(float64(gone))
		if err != nil {
			return err // without Redis nobody knows that nothing is left there
		}
	}
	for range pages {
		step, err := l.deps.Store.ArchiveLedger(ctx, campaign, l.cfg.ArchiveAfter, l.cfg.Page)
		if err != nil {
			return err
		}
		switch step {
		case shard.Archived:
			l.metrics.archived.Inc()
			l.deps.Log.InfoContext(ctx, "a settled campaign is archived", telemetry.Event, "campaign_archived", telemetry.CampaignID, campaign)
			return nil
		case shard.ArchiveCopied:
		default: // not due, or in use: the next look
			return nil
		}
	}
	return nil
}

// prune deletes inbox rows, as far as one look goes. The next one starts over, where less is left.
func (l *Loop) prune(ctx context.Context, campaign ids.CampaignID) error {
	var walk shard.InboxWalk
	defer func() { l.metrics.inbox.Add(float64(walk.Gone)) }()
	for range pages {
		var err error
		if walk, err = l.deps.Store.PruneInbox(ctx, campaign, l.cfg.Replay, l.cfg.Page, walk); err != nil || walk.Done {
			return err
		}
	}
	return nil
}
