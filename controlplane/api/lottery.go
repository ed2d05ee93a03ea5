package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/evidence"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/lottery"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// DrawLottery begins the draw of a campaign whose entry has ended.
func (h *Campaigns) DrawLottery(ctx context.Context, req *pb.DrawLotteryRequest) (*pb.DrawLotteryResponse, error) {
	var f fields
	in := intent.DrawLottery{
		OperationID: f.own("operation_id", req.GetOperationId()), Campaign: f.campaign(req.GetCampaignId()), Beacon: req.GetBeacon(),
		ExpectedVersion: f.version(req.GetExpectedVersion()), Reason: f.reason(req.GetReason(), true),
	}
	if len(in.Beacon) > allocator.MaxBeaconBytes {
		f.add("beacon", "must be at most 256 bytes")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if h.Archive == nil {
		return nil, fmt.Errorf("%w: %w", rpcstatus.ErrFailedPrecondition, lottery.ErrNoArchive)
	}
	campaign, op, err := h.Intent.DrawLottery(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.DrawLotteryResponse{Campaign: h.render(campaign), OperationId: in.OperationID}
	if op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}

// GetLotteryEvidence reads one object of a draw's evidence: the document, or a part that it names.
func (h *Campaigns) GetLotteryEvidence(ctx context.Context, req *pb.GetLotteryEvidenceRequest) (*pb.GetLotteryEvidenceResponse, error) {
	var f fields
	id, sku := f.campaign(req.GetCampaignId()), f.sku(req.GetSkuId())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, known := h.View.Snapshot().Campaign(id)
	if !known {
		return nil, fmt.Errorf("%w: %s", core.ErrUnknownCampaign, id)
	}
	draw, drawn := campaign.Draw(sku)
	if !drawn || h.Archive == nil {
		return nil, fmt.Errorf("%w: %s of %s was not drawn", rpcstatus.ErrNotFound, sku, id)
	}
	content, err := readEvidence(ctx, h.Archive, draw, req.GetObject())
	if err != nil {
		return nil, err
	}
	return &pb.GetLotteryEvidenceResponse{Content: content}, nil
}

// readEvidence gives the document, or one of the objects that it names and no other.
func readEvidence(ctx context.Context, from archive.Archive, draw core.LotteryDraw, object string) ([]byte, error) {
	raw, err := from.Get(ctx, core.ArchiveObject{Name: draw.Evidence, SHA256: draw.EvidenceSHA256, Size: draw.EvidenceSize})
	if err != nil || object == "" {
		return raw, err
	}
	var doc evidence.Document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", archive.ErrCorrupt, draw.Evidence, err)
	}
	for _, part := range append(doc.EntrantParts, doc.WinnerParts...) {
		if part.Object == object {
			return from.Get(ctx, core.ArchiveObject{Name: part.Object, SHA256: part.SHA256, Size: part.Size})
		}
	}
	return nil, fmt.Errorf("%w: the evidence of %s names no object %q", rpcstatus.ErrNotFound, draw.SKU, object)
}
