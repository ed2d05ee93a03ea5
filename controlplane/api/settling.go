package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Settling tells what a campaign's end is waiting for; settle.Driver implements it.
type Settling interface {
	// Blockers lists what a closed campaign waits for before it settles.
	Blockers(ctx context.Context, c core.Campaign) []string
	// Orders counts the orders that a cancelling would close and refund.
	Orders(ctx context.Context, id ids.CampaignID) (unpaid, paid int64, err error)
}

// blockedBy adds why a closed campaign does not settle. It asks the shards, so it is
// for one campaign, not for a list.
func (h *Campaigns) blockedBy(ctx context.Context, c core.Campaign, out *pb.Campaign) {
	if h.Settling != nil && c.State == core.CampaignClosed {
		out.BlockedBy = append(out.BlockedBy, h.Settling.Blockers(ctx, c)...)
	}
}

// CancelCampaign ends a campaign and gives all money back, once a second person has
// approved it. refund_all must be said, so that nobody cancels a sale without
// knowing it.
func (h *Campaigns) CancelCampaign(ctx context.Context, req *pb.CancelCampaignRequest) (*pb.CancelCampaignResponse, error) {
	var f fields
	change := f.change(req, true)
	if !req.GetRefundAll() {
		f.add("refund_all", "must be true: every paid order is refunded")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Intent.CancelCampaign(ctx, caller(ctx), change)
	if err != nil {
		return nil, err
	}
	out := &pb.CancelCampaignResponse{OperationId: change.OperationID}
	if op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	if change.ValidateOnly {
		out.UnpaidOrders, out.PaidOrders, err = h.Settling.Orders(ctx, change.Campaign)
	}
	return out, err
}

// History reads settled campaigns' journals back; settle.History implements it.
type History interface {
	Records(ctx context.Context, c core.Campaign, before int64, bound int) ([]core.Record, error)
}

// records gives a campaign's records created before a revision (0: all), newest
// first: those in etcd, and, of a settled campaign, those in the archive. One that
// is in both, because it is being pruned, is given once.
func (h *Quota) records(ctx context.Context, c core.Campaign, before int64, bound int) ([]core.Record, error) {
	here := h.View.Snapshot().Records(c.Spec.ID, before, bound)
	if len(c.Journal()) == 0 || h.History == nil {
		return here, nil
	}
	kept, err := h.History.Records(ctx, c, before, bound)
	if err != nil {
		return nil, err
	}
	var out []core.Record
	for len(out) < bound && (len(here) > 0 || len(kept) > 0) {
		switch {
		case len(here) == 0 || len(kept) > 0 && kept[0].CreateRevision > here[0].CreateRevision:
			out, kept = append(out, kept[0]), kept[1:]
		case len(kept) > 0 && kept[0].CreateRevision == here[0].CreateRevision:
			kept = kept[1:]
		default:
			out, here = append(out, here[0]), here[1:]
		}
	}
	return out, nil
}
