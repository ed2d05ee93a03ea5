package api

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/recovery"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Recovery is RecoveryService.
type Recovery struct {
	pb.UnimplementedRecoveryServiceServer
	Orders *recovery.Orders
}

// maxLimits bounds one order, as the number of pairs in a campaign is bounded.
const maxLimits = 100_000

// RecoverStore takes the books from the shards, or shows what it would set.
func (h *Recovery) RecoverStore(ctx context.Context, req *pb.RecoverStoreRequest) (*pb.RecoverStoreResponse, error) {
	var f fields
	in := recovery.Order{OperationID: f.operation("operation_id", req.GetOperationId()), Reason: f.reason(req.GetReason(), !req.GetValidateOnly())}
	if len(req.GetLimits()) > maxLimits {
		f.add("limits", fmt.Sprintf("must list at most %d", maxLimits))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	for i, l := range req.GetLimits() {
		units, err := quantity.New(int64(l.GetSaleLimit()))
		if err != nil {
			f.add(fmt.Sprintf("limits[%d].sale_limit", i), "must be from 1 to 1000000000")
		}
		in.Limits = append(in.Limits, core.ConfirmedLimit{Key: core.BookKey{Campaign: f.campaign(l.GetCampaignId()), SKU: f.sku(l.GetSkuId())}, SaleLimit: units})
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		books, cells, err := h.Orders.Preview(ctx, in.Limits)
		if err != nil {
			return nil, err
		}
		return &pb.RecoverStoreResponse{Books: recoveredBooks(books), Cells: recoveredCells(cells)}, nil
	}
	if err := in.Check(); err != nil {
		return nil, err
	}
	op, err := h.Orders.Recover(ctx, caller(ctx), in)
	if err != nil {
		return nil, err
	}
	return &pb.RecoverStoreResponse{Operation: convert.Operation(op)}, nil
}

func recoveredBooks(plans []recovery.BookPlan) []*pb.RecoveredBook {
	var out []*pb.RecoveredBook
	for _, p := range plans {
		b := &pb.RecoveredBook{
			CampaignId: string(p.Key.Campaign), SkuId: string(p.Key.SKU), StoredLimit: p.Stored.SaleLimit.Int32(), SaleLimit: p.Limit.Int32(),
			Floor: int32(p.Floor), Reserve: p.Next.Reserve.Int32(), BlockedBy: p.BlockedBy,
		}
		for _, a := range p.Next.Allocations {
			stored, _ := p.Stored.Allocation(a.Cell)
			b.Allocations = append(b.Allocations, &pb.RecoveredAllocation{
				CellId: string(a.Cell), Stored: stored.Granted.Int32(), Granted: a.Granted.Int32(), FenceVersion: a.FenceVersion, LastNumber: a.LastNumber,
			})
		}
		out = append(out, b)
	}
	return out
}

func recoveredCells(plans []recovery.CellPlan) []*pb.RecoveredCell {
	var out []*pb.RecoveredCell
	for _, p := range plans {
		out = append(out, &pb.RecoveredCell{
			CellId: string(p.Stored.Spec.ID), StoredVersion: p.Stored.FenceVersion, FenceVersion: p.Version,
			FenceState: pb.FenceState(pb.FenceState_value["FENCE_STATE_"+p.State]), Term: convert.Term(p.Term), BlockedBy: p.BlockedBy,
		})
	}
	return out
}
