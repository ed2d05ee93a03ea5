package audit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	// DefaultKeep is how long records stay in etcd.
	DefaultKeep = 7 * 24 * time.Hour
	// roundEvery is how often the keeper looks.
	roundEvery = 10 * time.Minute
	// perObject bounds the records of one object and of one removal.
	perObject = 2_000
)

// KeeperDeps are what a keeper is given; Archive and Registry may be nil.
type KeeperDeps struct {
	Store    *store.Store
	View     *view.View
	Archive  archive.Archive
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Keeper keeps etcd's part of the audit small. Lead runs it in the leader.
type Keeper struct {
	keep    time.Duration
	d       KeeperDeps
	removed *prometheus.CounterVec
}

// NewKeeper makes a keeper; keep 0: DefaultKeep.
func NewKeeper(keep time.Duration, d KeeperDeps) (*Keeper, error) {
	if keep <= 0 {
		keep = DefaultKeep
	}
	k := &Keeper{keep: keep, d: d, removed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "audit_removed_total",
		Help: "Records that became too old for etcd, by folder (audit, refusals, tokens); with an archive those of the audit went there first.",
	}, []string{"folder"})}
	if d.Registry == nil {
		return k, nil
	}
	return k, d.Registry.Register(k.removed)
}

// Lead looks once and then every ten minutes, until ctx ends. What fails is
// logged and tried again the next time: nothing is lost by being late.
func (k *Keeper) Lead(ctx context.Context, leader core.Leader) error {
	tick := k.d.Clock.NewTicker(roundEvery)
	defer tick.Stop()
	for {
		if err := k.Round(ctx, leader); err != nil && ctx.Err() == nil {
			k.d.Log.WarnContext(ctx, "old audit stays in etcd for now", append([]any{telemetry.Event, "audit_not_archived"}, telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// Round moves everything that is too old out of etcd.
func (k *Keeper) Round(ctx context.Context, leader core.Leader) error {
	var failed error
	until := k.d.Clock.Now().Add(-k.keep)
	for _, folder := range folders {
		failed = errors.Join(failed, k.folder(ctx, leader, folder, until))
	}
	return errors.Join(failed, k.tokens(ctx, leader, until))
}

func (k *Keeper) folder(ctx context.Context, leader core.Leader, folder store.Kind, until time.Time) error {
	for {
		records, revision, err := k.d.Store.TrailOldest(ctx, folder, core.TrailFrom(until), perObject)
		if err != nil || len(records) == 0 {
			return err
		}
		first, last := records[0], records[len(records)-1]
		index, err := k.archived(ctx, folder, records)
		if err != nil {
			return err
		}
		if err := k.d.Store.DropTrail(ctx, leader, folder, first.Name, last.Name, revision, index); err != nil {
			return err
		}
		k.removed.WithLabelValues(folder.String()).Add(float64(len(records)))
	}
}

// archived puts records into the archive; nil without one.
func (k *Keeper) archived(ctx context.Context, folder store.Kind, records []core.Trail) (*core.ArchiveIndex, error) {
	if k.d.Archive == nil {
		return nil, nil
	}
	content, err := encode(records)
	if err != nil {
		return nil, err
	}
	index := core.ArchiveIndex{}
	index.From, _ = core.TrailTime(records[0].Name)
	index.To, _ = core.TrailTime(records[len(records)-1].Name)
	index.Object, err = k.d.Archive.Put(ctx, objectName(folder, records[0].Name, records[len(records)-1].Name), content)
	return &index, err
}

// tokens removes those that nobody could use since before until; the audit keeps
// who made and ended them.
func (k *Keeper) tokens(ctx context.Context, leader core.Leader, until time.Time) error {
	for _, t := range k.d.View.Snapshot().Tokens() {
		if since, dead := t.Dead(k.d.Clock.Now()); !dead || !since.Before(until) {
			continue
		}
		revision, err := k.d.Store.Update(ctx, "drop token "+t.ID, func(tx *store.Tx) error {
			if err := tx.Lead(leader); err != nil {
				return err
			}
			if _, known, err := tx.Token(t.ID); err != nil || !known {
				return err
			}
			return errors.Join(tx.DropToken(t.ID), tx.Audit(core.Audit{
				Actor: actor, Method: actor, OperationID: t.OperationID, Subject: "token " + t.ID, Reason: "nobody can use it since " + t.ExpiresAt.UTC().Format(time.RFC3339),
			}))
		})
		if err != nil {
			return err
		}
		if revision > 0 {
			k.removed.WithLabelValues(store.KindToken.String()).Inc()
		}
	}
	return nil
}

// actor names the loop in records.
const actor = "planner"
