package api

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Accounts makes the accounts of a campaign; undersell.Reader implements it.
type Accounts interface {
	Read(ctx context.Context, id ids.CampaignID) (undersell.Result, error)
}

// AccountMetrics notes accounts that were made; settle.Metrics implements it.
type AccountMetrics interface {
	Account(campaign ids.CampaignID, accounts []undersell.Account)
}

// causes are the words of undersell on the wire.
var causes = map[undersell.Cause]pb.UndersellCause{
	undersell.Unallocated: pb.UndersellCause_UNDERSELL_CAUSE_UNALLOCATED, undersell.LeftInCell: pb.UndersellCause_UNDERSELL_CAUSE_LEFT_IN_CELL,
	undersell.ReleasedAfterEnd: pb.UndersellCause_UNDERSELL_CAUSE_RELEASED_AFTER_END, undersell.Frozen: pb.UndersellCause_UNDERSELL_CAUSE_FROZEN,
	undersell.WrittenOff: pb.UndersellCause_UNDERSELL_CAUSE_WRITTEN_OFF, undersell.UnderReview: pb.UndersellCause_UNDERSELL_CAUSE_UNDER_REVIEW,
}

// GetUndersell answers, per SKU, where every unit is that was not sold (I10).
func (h *Reports) GetUndersell(ctx context.Context, req *pb.GetUndersellRequest) (*pb.GetUndersellResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := h.known(id); err != nil {
		return nil, err
	}
	result, err := h.accounts.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	if c := result.Side.Campaign; h.accountMetrics != nil && (c.State == core.CampaignClosed || c.State == core.CampaignSettled) {
		h.accountMetrics.Account(id, result.Accounts)
	}
	return undersold(result), nil
}

func undersold(result undersell.Result) *pb.GetUndersellResponse {
	out := &pb.GetUndersellResponse{Unreachable: map[string]string{}}
	for cell, err := range result.Unreachable {
		out.Unreachable[string(cell)] = fmt.Sprint(err)
	}
	for _, a := range result.Accounts {
		out.Skus = append(out.Skus, &pb.SkuUndersell{
			SkuId: string(a.SKU), SaleLimit: int32(a.SaleLimit), Confirmed: int32(a.Confirmed), Causes: causeUnits(a.ByCause()), Cells: causeUnits(a.Cells),
		})
	}
	return out
}

func causeUnits(units []undersell.Units) (out []*pb.CauseUnits) {
	for _, u := range units {
		out = append(out, &pb.CauseUnits{Cause: causes[u.Cause], Units: int32(u.Units), CellId: string(u.Cell)})
	}
	return out
}
