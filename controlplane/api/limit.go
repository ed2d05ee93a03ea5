package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/quota"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// SetSaleLimit raises or lowers the limit of one SKU.
func (h *Campaigns) SetSaleLimit(ctx context.Context, req *pb.SetSaleLimitRequest) (*pb.SetSaleLimitResponse, error) {
	var f fields
	in := intent.SetLimit{
		OperationID: f.own("operation_id", req.GetOperationId()), Key: core.BookKey{Campaign: f.campaign(req.GetCampaignId()), SKU: f.sku(req.GetSkuId())},
		Limit: f.units("sale_limit", req.GetSaleLimit()), ExpectedVersion: f.version(req.GetExpectedVersion()), Reason: f.reason(req.GetReason(), true),
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	var err error
	if in.Floor, err = quota.Floor(ctx, h.View.Snapshot(), h.Shards, in.Key); err != nil {
		return nil, err
	}
	op, moved, err := h.Intent.SetSaleLimit(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.SetSaleLimitResponse{Book: convert.Book(moved.Book), OperationId: in.OperationID, Floor: in.Floor.Int32()}
	if op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}
