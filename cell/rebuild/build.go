package rebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// errOvertaken: another build was raised while this one was being made.
var errOvertaken = errors.New("rebuild: overtaken by another build")

// rebuild makes a new mirror in the order of doc.go, within the time-out. Another
// process at it is no error: its mirror is seen at a later look.
func (l *Loop) rebuild(ctx context.Context, p Plan, s sight, cause Cause) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	started := l.deps.Clock.Now()

	// A build that cannot be installed must not be raised: everything admitted would be lost for it.
	if err := l.mirror.Writable(ctx, p.Scope); err != nil {
		return fmt.Errorf("the mirror %s cannot be written: %w", p.Scope.Tag(), err)
	}
	// The claim outlives the time-out, so that nobody else starts while this one may
	// still be at it.
	mint, err := l.shard.MintBuild(ctx, p.Scope.Campaign, p.Scope.Key(), l.cfg.Owner, 2*l.cfg.Timeout)
	if errors.Is(err, shard.ErrBusy) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mint a build of %s: %w", p.Scope.Tag(), err)
	}
	// Another process may have finished between the look and the claim: a second
	// rebuild would reject every admission of its new mirror.
	if s, err = l.see(ctx, p, s); err != nil {
		return err
	}
	if judge(s) == Fit {
		return l.shard.ReleaseMint(ctx, p.Scope.Campaign, p.Scope.Key(), l.cfg.Owner)
	}
	if err := l.build(ctx, p, s, mint); err != nil {
		return fmt.Errorf("build %s of %s: %w", mint.Build, p.Scope.Tag(), err)
	}
	l.metrics.rebuilt(cause)
	l.deps.Logger.InfoContext(ctx, "mirror rebuilt", telemetry.Event, "mirror_rebuilt", "cause", string(cause), "build", mint.Build.String(),
		telemetry.CampaignID, string(p.Scope.Campaign), telemetry.SKUID, string(p.Scope.SKU),
		telemetry.FenceVersion, s.fence, "barrier", mint.NeedsBarrier, "took_ms", l.deps.Clock.Now().Sub(started).Milliseconds())
	return l.tidyUp(ctx, p, mint.Build)
}

func (l *Loop) build(ctx context.Context, p Plan, s sight, mint shard.Mint) error {
	if err := l.pause(ctx, p, s); err != nil {
		return err
	}
	if err := l.raise(ctx, p, s, mint); err != nil {
		return err
	}
	return l.install(ctx, p, s, mint.Build)
}

// pause stops every process that admits into what is there.
func (l *Loop) pause(ctx context.Context, p Plan, s sight) error {
	head := s.facts[0]
	if !head.Present {
		return nil
	}
	if head.Fence < s.fence {
		if _, err := l.mirror.RaiseFence(ctx, p.Scope, s.fence); err != nil {
			return err
		}
	}
	change, err := l.mirror.Pause(ctx, p.Scope, head.Build)
	if err == nil && change == admission.OtherBuild {
		return errOvertaken
	}
	return err
}

// raise makes the minted build the one below which messages are lost admissions.
func (l *Loop) raise(ctx context.Context, p Plan, s sight, mint shard.Mint) error {
	if !mint.NeedsBarrier {
		return l.shard.RaiseBuild(ctx, p.Scope.Campaign, p.Scope.Key(), mint.Build)
	}
	l.drainOld(ctx, p, s)
	if err := l.log.Barrier(ctx, p.Scope, mint.Build); err != nil {
		return err
	}
	return l.shard.AwaitRaised(ctx, p.Scope.Campaign, p.Scope.Key(), mint.Build)
}

// drainOld gives admissions of the old build a bounded time to reach the log in
// front of the barrier. What does not reach it is a lost admission.
func (l *Loop) drainOld(ctx context.Context, p Plan, s sight) {
	if !s.facts[0].Present || s.facts[0].StreamLength == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Drain)
	defer cancel()
	if err := l.drain.Sweep(ctx, p.Scope, 0); err != nil {
		l.deps.Logger.WarnContext(ctx, "entries of the old mirror stay behind", telemetry.Event, "rebuild_drain_failed",
			telemetry.CampaignID, string(p.Scope.Campaign), telemetry.SKUID, string(p.Scope.SKU), telemetry.Error, err)
	}
}

// install makes the mirror from one snapshot of the shard.
func (l *Loop) install(ctx context.Context, p Plan, s sight, build ids.Build) error {
	snap, err := l.shard.MirrorSnapshot(ctx, p.Scope.Campaign, p.Scope.Key())
	if err != nil {
		return err
	}
	defer snap.Close(context.WithoutCancel(ctx))
	if snap.Build != build {
		return fmt.Errorf("%w: the snapshot is of %s", errOvertaken, snap.Build)
	}
	return l.mirror.Install(ctx, p.image(build, s.server, s.shard, snap.Stocks, snap.Marks(ctx), snap.Requests(ctx)))
}

// tidyUp ends the claim and removes older builds. Neither undoes the rebuild when
// it fails: the claim ends by itself, and the next rebuild sweeps again.
func (l *Loop) tidyUp(ctx context.Context, p Plan, build ids.Build) error {
	l.mirror.Expect(p.Scope, build)
	err := l.shard.ReleaseMint(ctx, p.Scope.Campaign, p.Scope.Key(), l.cfg.Owner)
	_, sweep := l.mirror.Sweep(ctx, p.Scope, build)
	return errors.Join(err, sweep)
}
