package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// told is the highest rules that any shard was told of a campaign, and the buckets
// that each cell was told with it.
type told struct {
	rules   *pb.CampaignRules
	buckets map[string]*pb.DomainRoute
}

// toldBy gathers the rules of every shard.
func toldBy(shards []facts) map[ids.CampaignID]told {
	out := map[ids.CampaignID]told{}
	for _, shard := range shards {
		for id, rules := range shard.rules {
			t := out[id]
			if t.rules.GetVersion() < rules.GetVersion() {
				t.rules = rules
			}
			if t.buckets == nil {
				t.buckets = map[string]*pb.DomainRoute{}
			}
			for _, d := range rules.GetBuckets() {
				if t.buckets[d.GetDomain()] == nil {
					t.buckets[d.GetDomain()] = &pb.DomainRoute{Domain: d.GetDomain()}
				}
				into := t.buckets[d.GetDomain()]
				into.Cells = append(into.Cells, &pb.CellBuckets{CellId: string(shard.cell), Buckets: d})
			}
			out[id] = t
		}
	}
	return out
}

// movedBy gathers, by campaign, the newest route version that moved a bucket of it in any
// shard.
func movedBy(shards []facts) map[ids.CampaignID]int64 {
	out := map[ids.CampaignID]int64{}
	for _, shard := range shards {
		for campaign, version := range shard.moved {
			out[ids.CampaignID(campaign)] = max(out[ids.CampaignID(campaign)], version)
		}
	}
	return out
}

// recovered gives a campaign as its shards were told of it, under a version above
// theirs, and whether it differs from etcd's. One that was being published when the
// past was lost comes back PAUSED: somebody has to look before it sells.
func (t told) recovered(stored core.Campaign, known bool) (core.Campaign, bool, error) {
	version := t.rules.GetVersion()
	if known && (stored.State == core.CampaignSettled || stored.Version > version ||
		stored.Version == version && int32(stored.State) == int32(t.rules.GetState())) {
		return stored, false, nil
	}
	spec, err := convert.FromSpec(t.rules.GetSpec())
	if err != nil {
		return core.Campaign{}, false, err
	}
	next := stored
	next.Spec, next.Version, next.OperationID = spec, max(version, stored.Version)+1, ""
	if next.State = core.CampaignState(t.rules.GetState()); next.State == core.CampaignPublishing {
		next.State = core.CampaignPaused
	}
	next.BookedSKUs, next.PausedSKUs, next.FinalSKUs = nil, nil, nil
	for _, sku := range spec.SKUs {
		next.BookedSKUs = append(next.BookedSKUs, sku.ID)
	}
	for _, sku := range t.rules.GetPausedSkus() {
		next.PausedSKUs = append(next.PausedSKUs, ids.SKUID(sku))
	}
	for _, sku := range t.rules.GetFinalSkus() {
		next.FinalSKUs = append(next.FinalSKUs, ids.SKUID(sku))
	}
	if at := t.rules.GetPublishedAtMs(); at > 0 {
		next.PublishedAt = time.UnixMilli(at).UTC()
	}
	if t.rules.GetCancelled() && !next.Cancelled() {
		next.CancelledBy = actor // by an operation that is lost; its cells were told, and it stays
	}
	if next.Owner == "" {
		next.Owner = actor
	}
	return next, true, next.Check()
}

// route gives the campaign's route, put together from what each shard was dealt.
func (t told) route(campaign ids.CampaignID) (core.Route, error) {
	var domains []*pb.DomainRoute
	for _, d := range t.buckets {
		domains = append(domains, d)
	}
	slices.SortFunc(domains, func(a, b *pb.DomainRoute) int { return cmp.Compare(a.Domain, b.Domain) })
	from, err := convert.FromDomains(domains)
	if err != nil {
		return core.Route{}, fmt.Errorf("buckets of %s: %w", campaign, err)
	}
	return core.Route{Campaign: campaign, Version: 1, Domains: from}, nil
}
