package core

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// amendable are the paths, without the SKU's index, that may change once a campaign
// is published: they promise nothing to customers and move no unit by themselves.
// close_at has rules of its own.
var amendable = map[string]bool{"display": true, "limits": true, "close_at": true, "skus[].top_up": true, "skus[].rebalance": true}

// index is the place of a SKU in its list.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// instead says which command changes what a new file may not.
var instead = map[string]string{
	"skus[].sale_limit": "; `cellctl campaign set-limit` raises or lowers it",
	"cells":             "; `cellctl campaign add-cell` lets one more take part",
}

// Amend replaces the file: all of a draft; of a campaign that was published only
// close_at (to a later instant, before it is closed), display, limits, top_up and
// rebalance. changed names the paths that differ; a file without a difference
// changes nothing. Every other difference is refused at once, by path: ErrFrozen.
// The order of SKUs and cells stays as published. ErrCampaignState while it is
// being published and once it is settled.
func (c Campaign) Amend(spec CampaignSpec, now time.Time) (next Campaign, changed []string, err error) {
	if c.State == CampaignPublishing || c.State == CampaignSettled {
		return Campaign{}, nil, numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", c.State, "wanted", "update")
	}
	changed = c.Spec.Diff(spec)
	if c.State != CampaignDraft {
		if err := c.frozen(spec, changed, now); err != nil {
			return Campaign{}, nil, err
		}
		spec = c.Spec.amended(spec)
	}
	if c.Spec.Equal(spec) {
		return c, nil, nil
	}
	next = c.clone()
	next.Spec = spec
	next.Version++
	return next, changed, nil
}

// frozen gives ErrFrozen with every path that may not change any more.
func (c Campaign) frozen(spec CampaignSpec, changed []string, now time.Time) error {
	var v []rpcstatus.Violation
	for _, path := range changed {
		key := index.ReplaceAllString(path, "[]")
		switch {
		case !amendable[key]:
			v = append(v, rpcstatus.Violation{Field: path, Rule: fmt.Sprintf("must stay as it was published%s", instead[key])})
		case key != "close_at":
		case c.Running(now, "update") != nil:
			v = append(v, rpcstatus.Violation{Field: path, Rule: "must stay: the campaign is over, and its customers were told so"})
		case spec.CloseAt.Before(c.Spec.CloseAt):
			v = append(v, rpcstatus.Violation{Field: path, Rule: "may only become later; `cellctl campaign close` ends the sale now"})
		}
	}
	if len(v) == 0 {
		return nil
	}
	text := fmt.Errorf("%w: %s is %s, and %d of the file's differences may not be made any more", ErrFrozen, c.Spec.ID, c.State, len(v))
	return rpcstatus.With(text, map[string]string{"campaign_id": string(c.Spec.ID), "state": c.State.String()}, v, 0)
}

// amended gives s with what may change of a published campaign taken from next.
func (s CampaignSpec) amended(next CampaignSpec) CampaignSpec {
	s.CloseAt, s.DisplayJSON, s.Limits = next.CloseAt, next.DisplayJSON, next.Limits
	now := make(map[ids.SKUID]SKUSpec, len(next.SKUs))
	for _, sku := range next.SKUs {
		now[sku.ID] = sku
	}
	s.SKUs = slices.Clone(s.SKUs)
	for i := range s.SKUs {
		s.SKUs[i].TopUp, s.SKUs[i].Rebalance = now[s.SKUs[i].ID].TopUp, now[s.SKUs[i].ID].Rebalance
	}
	return s
}
