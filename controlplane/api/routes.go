package api

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// admissionRole is the role of the processes that edges talk to.
const admissionRole = "admission"

// routes is what edges are told of a snapshot; the zero value is "nothing yet".
type routes struct {
	revision  int64
	campaigns map[string]campaignAt
	cells     map[string]*pb.CellRoute
	keys      []*pb.KeyInfo
}

// campaignAt is a campaign and the revisions that made it what it is, so that
// comparing two snapshots does not compare their rules.
type campaignAt struct {
	revision, route int64
	message         func() *pb.CampaignRoute
}

func routesOf(s view.Snapshot) routes {
	out := routes{revision: s.Revision(), campaigns: map[string]campaignAt{}, cells: map[string]*pb.CellRoute{}}
	for _, c := range s.Campaigns() {
		route, known := s.Route(c.Spec.ID)
		if !known || !shownToEdges(c) {
			continue
		}
		out.campaigns[string(c.Spec.ID)] = campaignAt{c.ModRevision, route.ModRevision, func() *pb.CampaignRoute { return campaignRoute(c, route) }}
	}
	for _, c := range s.Cells() {
		out.cells[string(c.Spec.ID)] = cellRoute(s, c)
	}
	for _, k := range s.Keys() {
		out.keys = append(out.keys, convert.Key(k))
	}
	return out
}

func campaignRoute(c core.Campaign, route core.Route) *pb.CampaignRoute {
	out := &pb.CampaignRoute{
		LotteryCommitment: convert.Commitment(c),
		Spec:              convert.Spec(c.Spec), Version: c.Version, State: pb.CampaignState(c.State), RouteVersion: route.Version, Domains: convert.Domains(route.Domains),
	}
	for _, sku := range c.PausedSKUs {
		out.PausedSkus = append(out.PausedSkus, string(sku))
	}
	for _, sku := range c.FinalSKUs {
		out.FinalSkus = append(out.FinalSkus, string(sku))
	}
	out.Cancelled = c.Cancelled()
	if !c.PublishedAt.IsZero() {
		out.PublishedAtMs = c.PublishedAt.UnixMilli()
	}
	return out
}

// cellRoute lists the processes of the cell's own group that admit.
func cellRoute(s view.Snapshot, c core.Cell) *pb.CellRoute {
	out := &pb.CellRoute{CellId: string(c.Spec.ID), Region: c.Spec.Region, State: pb.CellState(s.CellState(c)), Paused: c.Paused}
	for _, in := range s.Instances(c.Spec.ID) {
		if in.Group == c.InstanceGroup && slices.Contains(in.Roles, admissionRole) {
			out.Addresses = append(out.Addresses, in.Address)
		}
	}
	return out
}

// since gives the message that brings an edge from before to here; nil when there
// is nothing to tell.
func (r routes) since(before routes) *pb.WatchRoutesResponse {
	m := &pb.WatchRoutesResponse{Revision: r.revision, Full: before.revision == 0}
	for _, id := range sortedKeys(r.campaigns) {
		c, old := r.campaigns[id], before.campaigns[id]
		if c.revision != old.revision || c.route != old.route {
			m.Campaigns = append(m.Campaigns, c.message())
		}
	}
	for _, id := range sortedKeys(r.cells) {
		if !proto.Equal(r.cells[id], before.cells[id]) {
			m.Cells = append(m.Cells, r.cells[id])
		}
	}
	m.RemovedCampaigns, m.RemovedCells = gone(before.campaigns, r.campaigns), gone(before.cells, r.cells)
	if !slices.EqualFunc(r.keys, before.keys, func(a, b *pb.KeyInfo) bool { return proto.Equal(a, b) }) {
		m.Keys = r.keys
	}
	if m.Full || len(m.Campaigns)+len(m.Cells)+len(m.RemovedCampaigns)+len(m.RemovedCells)+len(m.Keys) > 0 {
		return m
	}
	return nil
}

func gone[V any](before, now map[string]V) []string {
	var out []string
	for _, id := range sortedKeys(before) {
		if _, still := now[id]; !still {
			out = append(out, id)
		}
	}
	return out
}
