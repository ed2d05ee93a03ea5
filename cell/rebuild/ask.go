package rebuild

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// Asks carries out an operator's wish to have mirrors made anew: it pauses what is
// there, as a rebuild that began and did not end would leave it, and every process
// that admits sees a mirror that is not fit. So it works in any process of the cell,
// and nothing that was admitted is treated otherwise than at any rebuild.
//
// What was asked is remembered by the asker's id, so that a repeat waits for the same
// rebuild; a process that was restarted in between asks for one more, which costs a
// pause and nothing else. Safe for concurrent use.
type Asks struct {
	shard  Shard
	mirror Mirror
	plans  func() []Plan

	mu    sync.Mutex
	asked []ask
}

// ask is one wish: the build that each mirror has to get above.
type ask struct {
	id    string
	above map[admission.Scope]ids.Build
}

// maxAsks bounds what is remembered; the oldest is forgotten first.
const maxAsks = 64

// NewAsks makes an Asks over the mirrors that plans names.
func NewAsks(sh Shard, m Mirror, plans func() []Plan) *Asks {
	return &Asks{shard: sh, mirror: m, plans: plans}
}

// Rebuild asks for the campaign's mirrors, or the one that holds a SKU, under the
// asker's id, and tells whether all have been made since and may be admitted into.
// shard.ErrInvalid: the campaign has no such mirror here. Any other error: it was not
// asked, or not seen; repeat the call.
func (a *Asks) Rebuild(ctx context.Context, id string, campaign ids.CampaignID, sku ids.SKUID) (done bool, err error) {
	var wanted []Plan
	for _, p := range a.plans() {
		if p.Scope.Campaign == campaign && (sku == "" || slices.Contains(p.SKUs, sku)) {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == 0 {
		return false, fmt.Errorf("%w: campaign %s has no mirror of %q in this cell", shard.ErrInvalid, campaign, sku)
	}
	a.mu.Lock() // one wish after the other: two would pause the same mirror twice
	defer a.mu.Unlock()
	above := a.of(id)
	done = true
	for _, p := range wanted {
		if _, known := above[p.Scope]; !known {
			before, err := a.pause(ctx, p)
			if err != nil {
				return false, err
			}
			above[p.Scope] = before
		}
		fresh, err := a.fresh(ctx, p, above[p.Scope])
		if err != nil {
			return false, err
		}
		done = done && fresh
	}
	return done, nil
}

// pause makes the mirror unfit, and gives the build that it had. One that is being
// made anew already is left alone.
func (a *Asks) pause(ctx context.Context, p Plan) (ids.Build, error) {
	build, err := a.shard.RaisedBuild(ctx, p.Scope.Campaign, p.Scope.Key())
	if err != nil {
		return ids.Build{}, err
	}
	_, err = a.mirror.Pause(ctx, p.Scope, build)
	return build, err
}

// fresh tells whether a later build was raised and is fit.
func (a *Asks) fresh(ctx context.Context, p Plan, above ids.Build) (bool, error) {
	raised, err := a.shard.RaisedBuild(ctx, p.Scope.Campaign, p.Scope.Key())
	if err != nil || raised == above {
		return false, err
	}
	facts, err := a.mirror.Facts(ctx, p.Scope, p.SKUs[0])
	return err == nil && facts.Present && facts.Build == raised && facts.State == admission.Ready, err
}

// of finds or makes the memory of one wish.
func (a *Asks) of(id string) map[admission.Scope]ids.Build {
	for _, one := range a.asked {
		if one.id == id {
			return one.above
		}
	}
	one := ask{id, map[admission.Scope]ids.Build{}}
	a.asked = append(slices.Clone(a.asked[max(0, len(a.asked)-maxAsks+1):]), one)
	return one.above
}
