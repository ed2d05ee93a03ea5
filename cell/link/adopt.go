package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// adopt takes the right to write from the shard itself, for a process without one whose control plane
// does not answer (architecture, section 1, fence version).
func (l *Link) adopt(ctx context.Context) {
	if _, ok := l.Shard.Writer(); ok {
		return
	}
	if _, ok := l.Rules.Ready(); !ok {
		return // which mirrors to ask is not known yet
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	fence, err := l.adoptable(ctx)
	if err != nil {
		l.Logger.InfoContext(ctx, "no right to write from the shard alone", telemetry.Event, "link_not_adopted", telemetry.Error, err.Error())
		return
	}
	l.Shard.SetWriter(shard.Writer{FenceVersion: fence.Version, Group: l.cfg.Group})
	l.Standing.adopted()
	l.Standing.SawFence(fence)
	l.Logger.WarnContext(ctx, "the control plane does not answer; selling by the shard's own row", telemetry.Event, "link_adopted",
		telemetry.FenceVersion, fence.Version)
}

// adoptable reads the fence row and says why it may not be taken.
func (l *Link) adoptable(ctx context.Context) (shard.Fence, error) {
	seen, err := l.Shard.Observe(ctx)
	if err != nil {
		return shard.Fence{}, err
	}
	fence, err := l.Shard.ReadFence(ctx)
	if err != nil {
		return fence, err
	}
	switch doubt := l.Shard.Doubt(); {
	case doubt.Why != "":
		return fence, fmt.Errorf("the shard is in doubt, and no control plane says that it is in order: %s", doubt.Why)
	case fence.Cell != l.cfg.Cell:
		return fence, fmt.Errorf("the shard is of cell %s", fence.Cell)
	case fence.State != shard.Active:
		return fence, fmt.Errorf("the fence row is %s", fence.State)
	case fence.Version <= l.barred:
		return fence, fmt.Errorf("fence version %d was refused to this process by name", fence.Version)
	case fence.InstanceGroup != l.cfg.Group:
		return fence, fmt.Errorf("the fence row is of group %s", fence.InstanceGroup)
	}
	identity, err := l.Shard.Identity(ctx)
	if err != nil {
		return fence, err
	}
	return fence, l.witnessed(ctx, fence, identity, seen)
}

// witnessed asks the mirrors whether they saw a later shard than this one. Where the shard knows of
// campaigns, at least one must have seen it: with nobody to ask, an old copy would look the same.
func (l *Link) witnessed(ctx context.Context, fence shard.Fence, identity string, seen shard.Sight) error {
	all, witnesses := l.Rules.Current().All(), 0
	for _, c := range all {
		for _, sku := range c.SKUs() {
			facts, err := l.Mirror.Facts(ctx, scopeOf(c.ID, sku.ID, c.PerSKU), sku.ID)
			switch {
			case err != nil || !facts.Present:
			case facts.Fence > fence.Version:
				return fmt.Errorf("the mirror of %s has seen fence version %d, the shard is at %d", c.ID, facts.Fence, fence.Version)
			case facts.Shard != "" && facts.Shard != identity:
				return fmt.Errorf("the mirror of %s was built from shard %s, this one is %s", c.ID, facts.Shard, identity)
			case seen.JSON != nil && mirrored(c.ID, sku.ID, facts).Lacks(seen.Witness) != "":
				return fmt.Errorf("the mirror of %s saw more than the shard shows: %s", c.ID, mirrored(c.ID, sku.ID, facts).Lacks(seen.Witness))
			default:
				witnesses++
			}
			if !c.PerSKU {
				break // one mirror for all its SKUs
			}
		}
	}
	if len(all) > 0 && witnesses == 0 {
		return errors.New("neither control plane nor mirror tells whether the shard is whole")
	}
	return nil
}
