package hygiene

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	// DefaultKeep is how long ended operations stay.
	DefaultKeep = 7 * 24 * time.Hour
	// roundEvery is how often the pruner looks.
	roundEvery = 10 * time.Minute
	// batch is the operations of one transaction: each is at most two compares and two
	// removals, and etcd takes 128 of both.
	batch = 25
	// perRound bounds the transactions of one round and kind.
	perRound = 40
	// actor names the loop in records.
	actor = "planner"
)

// Pruner removes records that nobody needs. Lead runs it in the leader.
type Pruner struct {
	keep    time.Duration
	d       Deps
	removed *prometheus.CounterVec
}

// NewPruner makes a pruner; keep 0: DefaultKeep.
func NewPruner(keep time.Duration, d Deps) (*Pruner, error) {
	if keep <= 0 {
		keep = DefaultKeep
	}
	p := &Pruner{keep: keep, d: d, removed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "records_removed_total",
		Help: "Records that the leader took out of etcd because nobody needs them any more, by folder (operations, approvals, proofs).",
	}, []string{"folder"})}
	if d.Registry == nil {
		return p, nil
	}
	return p, d.Registry.Register(p.removed)
}

// Lead looks once and then every ten minutes, until ctx ends. What fails is
// logged and tried again the next time.
func (p *Pruner) Lead(ctx context.Context, leader core.Leader) error {
	tick := p.d.Clock.NewTicker(roundEvery)
	defer tick.Stop()
	for {
		if err := p.Round(ctx, leader); err != nil && ctx.Err() == nil {
			p.d.Log.WarnContext(ctx, "old records stay in etcd for now", append([]any{telemetry.Event, "records_not_removed"}, telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// Round removes what is due by the view, at most so much; the next one goes on.
func (p *Pruner) Round(ctx context.Context, leader core.Leader) error {
	s, until := p.d.View.Snapshot(), p.d.Clock.Now().Add(-p.keep)
	if _, stands := s.Restored(); stands {
		return nil // what is there may be all that is left
	}
	return errors.Join(
		each(ctx, dueOperations(s, until), func(due []string) error { return p.operations(ctx, leader, due) }),
		each(ctx, dueProofs(s, until), func(proofs []core.Proof) error { return p.proofs(ctx, leader, proofs) }),
	)
}

// each hands out batches until one fails or the round's bound is reached.
func each[T any](ctx context.Context, all []T, remove func([]T) error) error {
	for range perRound {
		if len(all) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		some := all[:min(len(all), batch)]
		if err := remove(some); err != nil {
			return err
		}
		all = all[len(some):]
	}
	return nil
}

// dueOperations names what ended before until and neither a cell nor a journal
// holds, and approvals that outlived their operation.
func dueOperations(s view.Snapshot, until time.Time) []string {
	held := map[string]bool{}
	for _, c := range s.Cells() {
		held[c.OperationID] = true
	}
	lives := map[ids.CampaignID]bool{} // campaigns of the operations that were asked about
	var due []string
	for _, op := range s.Operations(0, 0) {
		if ended(op, until) && !held[op.ID] && !journalled(s, op, lives) {
			due = append(due, op.ID)
		}
	}
	for _, a := range s.Approvals(0, 0) {
		if _, known := s.Operation(a.ID); !known && decided(a, until) {
			due = append(due, a.ID)
		}
	}
	return due
}

// journalled: the operation is about a campaign whose journal is still in etcd. Its
// moves are in there under ids made from its own: while they answer a repeat, the
// operation does too. The journal bounds how many there are, and goes when the
// campaign has settled or is deleted.
func journalled(s view.Snapshot, op core.Operation, lives map[ids.CampaignID]bool) bool {
	campaign, _, about := op.About()
	if !about {
		return false
	}
	kept, asked := lives[campaign]
	if !asked {
		kept = len(s.Records(campaign, 0, 1)) > 0
		lives[campaign] = kept
	}
	return kept
}

func ended(op core.Operation, until time.Time) bool {
	at := op.EndedAt
	if at.IsZero() {
		at = op.StartedAt
	}
	return op.State.Terminal() && at.Before(until)
}

func decided(a core.Approval, until time.Time) bool {
	return a.State.Terminal() && a.DecidedAt.Before(until)
}

// operations removes operations with their approvals, each if it is still what the
// view showed.
func (p *Pruner) operations(ctx context.Context, leader core.Leader, due []string) error {
	until := p.d.Clock.Now().Add(-p.keep)
	var operations, approvals int
	_, err := p.d.Store.Update(ctx, "remove ended operations", func(tx *store.Tx) error {
		operations, approvals = 0, 0
		if err := tx.Lead(leader); err != nil {
			return err
		}
		for _, id := range due {
			op, known, err := tx.Operation(id)
			if err != nil {
				return err
			}
			if known && !ended(op, until) {
				continue // the id was used again
			}
			approval, asked, err := tx.Approval(id)
			if err != nil {
				return err
			}
			if known {
				operations++
				err = tx.DropOperation(id)
			}
			if asked && decided(approval, until) {
				approvals++
				err = errors.Join(err, tx.DropApproval(id))
			}
			if err != nil {
				return err
			}
		}
		if operations+approvals == 0 {
			return nil
		}
		return tx.Audit(core.Audit{
			Actor: actor, Method: actor, Subject: "operations",
			Reason: fmt.Sprintf("%d operations and %d approvals ended before %s", operations, approvals, until.UTC().Format(time.RFC3339)),
		})
	})
	if err != nil {
		return err
	}
	p.removed.WithLabelValues(store.KindOperation.String()).Add(float64(operations))
	p.removed.WithLabelValues(store.KindApproval.String()).Add(float64(approvals))
	return nil
}
