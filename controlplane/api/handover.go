package api

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// HandOverBuckets gives buckets to another cell, or tells which and whom that would
// move. A region-operator moves customers between cells of its own regions only.
func (h *Routes) HandOverBuckets(ctx context.Context, req *pb.HandOverBucketsRequest) (*pb.HandOverBucketsResponse, error) {
	var f fields
	in := intent.HandOver{
		OperationID: f.order(req.GetOperationId(), req.GetValidateOnly()), Campaign: f.campaign(req.GetCampaignId()), Reason: f.reason(req.GetReason(), true),
		Handover: core.Handover{
			Domain: req.GetDomain(), From: f.cellIn("from_cell_id", req.GetFromCellId()), To: f.cellIn("to_cell_id", req.GetToCellId()),
			First: f.bucket("bucket_from", req.GetBucketFrom()), Last: f.bucket("bucket_to", req.GetBucketTo()), ExpectedVersion: f.version(req.GetExpectedRouteVersion()),
		},
		May: func(c core.Cell) error { return access.Region(ctx, c.Spec.Region) },
	}
	if in.From == in.To && in.From != "" {
		f.add("to_cell_id", "must be another cell than from_cell_id")
	}
	if in.First > in.Last {
		f.add("bucket_to", "must not be below bucket_from")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	got, err := h.Intent.HandOver(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.HandOverBucketsResponse{OperationId: req.GetOperationId(), Buckets: convert.Buckets(in.Domain, got.Ranges), RouteVersion: got.Version}
	for _, r := range got.Ranges {
		out.BucketCount += int32(r.Count())
	}
	if got.Operation.ID != "" {
		out.Operation = convert.Operation(got.Operation)
		return out, nil
	}
	if n, err := h.buyers(ctx, in.Campaign, got); err == nil {
		out.Buyers = &n
	}
	return out, nil
}

// buyers counts the orders of the buckets' users in the giver's shard.
func (h *Routes) buyers(ctx context.Context, campaign ids.CampaignID, of intent.HandedOver) (n int64, err error) {
	shard, err := h.Reader.Snapshot(ctx, of.Giver.Spec.Shard.ReaderDSNFile)
	if err != nil {
		return 0, err
	}
	defer shard.Close(ctx)
	moves := core.BucketMove{Ranges: of.Ranges}
	for order, err := range shard.Orders(ctx, string(campaign), true) {
		if err != nil {
			return 0, err
		}
		if moves.Has(ids.Bucket(ids.UserID(order.User))) {
			n++
		}
	}
	return n, nil
}

// GetRoute answers a campaign's whole map.
func (h *Routes) GetRoute(_ context.Context, req *pb.GetRouteRequest) (*pb.GetRouteResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	route, known := h.View.Snapshot().Route(id)
	if !known {
		return nil, unknownCampaign(id)
	}
	return &pb.GetRouteResponse{CampaignId: string(id), RouteVersion: route.Version, Domains: convert.Domains(route.Domains)}, nil
}

// ShardReader reads shards as cellquota_reader.
type ShardReader interface {
	Snapshot(ctx context.Context, dsnFile string) (*shards.Snapshot, error)
}

// bucket reads one bucket of a traffic domain.
func (f *fields) bucket(field string, n int32) uint16 {
	if n < 0 || n >= allocator.Buckets {
		f.add(field, fmt.Sprintf("must be from 0 to %d", allocator.Buckets-1))
		return 0
	}
	return uint16(n)
}
