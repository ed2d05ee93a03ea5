package api

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Quota is QuotaService.
type Quota struct {
	pb.UnimplementedQuotaServiceServer
	Intent  *intent.Service
	View    *view.View
	History History // of settled campaigns; nil: etcd alone
	Supply  Supply
	Cells   *Cells // knows who leads; nil: this replica
}

// PreviewSplit shows how units and buckets would be cut.
func (h *Quota) PreviewSplit(ctx context.Context, req *pb.PreviewSplitRequest) (*pb.PreviewSplitResponse, error) {
	s := h.View.Snapshot()
	spec, warnings, err := previewed(s, req)
	if err != nil {
		return nil, err
	}
	if out, ok := fromLeader(ctx, h.Cells, func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.PreviewSplitResponse, error) {
		return pb.NewQuotaServiceClient(leader).PreviewSplit(ctx, req)
	}); ok {
		return out, nil
	}
	demand := h.demand(s, spec.ID)
	split, err := spec.PreviewBy(s.CellsByID(), demand)
	if err != nil {
		return nil, err
	}
	out := &pb.PreviewSplitResponse{Reserves: map[string]int32{}, Warnings: append(warnings, split.Warnings...)}
	owned := core.Owned(split.Domains)
	for i, plan := range split.Plans {
		sku := string(spec.SKUs[i].ID)
		out.Reserves[sku] = plan.Reserve.Int32()
		for _, g := range plan.Grants {
			out.Rows = append(out.Rows, &pb.SplitRow{SkuId: sku, CellId: g.Cell, Units: g.Units.Int32(), Buckets: int32(owned[g.Cell]), Demand: int64(demand(spec.SKUs[i].ID, ids.CellID(g.Cell)))})
		}
	}
	return out, nil
}

// previewed gives the spec of the file, else of the stored campaign.
func previewed(s view.Snapshot, req *pb.PreviewSplitRequest) (core.CampaignSpec, []string, error) {
	if req.GetYaml() != "" {
		spec, warnings, faults := campaignfile.ParseCampaign(req.GetYaml(), cellsOf(s))
		return spec, warnings, campaignfile.Error(faults)
	}
	var f fields
	id := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return core.CampaignSpec{}, nil, err
	}
	campaign, known := s.Campaign(id)
	if !known {
		return core.CampaignSpec{}, nil, unknownCampaign(id)
	}
	return campaign.Spec, nil, nil
}

// ListAllocations answers a campaign's books.
func (h *Quota) ListAllocations(_ context.Context, req *pb.ListAllocationsRequest) (*pb.ListAllocationsResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	sku := ids.SKUID("")
	if req.GetSkuId() != "" {
		sku = f.sku(req.GetSkuId())
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	if _, known := s.Campaign(id); !known {
		return nil, unknownCampaign(id)
	}
	out := &pb.ListAllocationsResponse{Revision: s.Revision(), ViewAgeMs: s.Age().Milliseconds()}
	for _, b := range s.Books(id) {
		if sku == "" || b.Key.SKU == sku {
			out.Books = append(out.Books, convert.Book(b))
		}
	}
	if sku != "" && len(out.Books) == 0 {
		return nil, rpcstatus.With(fmt.Errorf("%w: %s/%s", core.ErrUnknownSKU, id, sku), map[string]string{"sku_id": string(sku)}, nil, 0)
	}
	return out, nil
}

// TopUp grants units of the reserve to a cell.
func (h *Quota) TopUp(ctx context.Context, req *pb.TopUpRequest) (*pb.TopUpResponse, error) {
	var f fields
	in := intent.TopUp{
		AdjustmentID: f.adjustment(req.GetAdjustmentId()), Key: core.BookKey{Campaign: f.campaign(req.GetCampaignId()), SKU: f.sku(req.GetSkuId())},
		Cell: f.cell(req.GetCellId()), Units: f.units("units", req.GetUnits()), ExpectedVersion: f.version(req.GetExpectedVersion()), Reason: f.reason(req.GetReason(), false),
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	moved, err := h.Intent.TopUp(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.TopUpResponse{Book: convert.Book(moved.Book), OperationId: in.AdjustmentID}
	if at := moved.Record.Find(in.AdjustmentID); at >= 0 {
		out.Adjustment = convert.Adjustment(moved.Record.Adjustments[at])
	}
	return out, nil
}

// ListAdjustments answers a page of a campaign's journal, newest record first,
// the adjustments of one record in their own order.
func (h *Quota) ListAdjustments(ctx context.Context, req *pb.ListAdjustmentsRequest) (*pb.ListAdjustmentsResponse, error) {
	var f fields
	id, size := f.campaign(req.GetCampaignId()), f.pageSize(req.GetPageSize())
	revision, shown := f.before(req.GetPageToken())
	if req.GetSkuId() != "" {
		f.sku(req.GetSkuId())
	}
	if req.GetCellId() != "" {
		f.cell(req.GetCellId())
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, known := h.View.Snapshot().Campaign(id)
	if !known {
		return nil, unknownCampaign(id)
	}
	out := &pb.ListAdjustmentsResponse{}
	if revision > 0 {
		revision++ // the record that was cut comes first again
	}
	for {
		records, err := h.records(ctx, campaign, revision, size+1)
		if err != nil || len(records) == 0 {
			return out, err
		}
		revision = records[len(records)-1].CreateRevision
		for _, r := range records {
			for i := shown; i < len(r.Adjustments); i++ {
				a := r.Adjustments[i]
				if req.GetSkuId() != "" && string(a.Key.SKU) != req.GetSkuId() || req.GetCellId() != "" && string(a.Cell) != req.GetCellId() {
					continue
				}
				if len(out.Adjustments) == size {
					out.NextPageToken = pageToken(strconv.FormatInt(r.CreateRevision, 10), strconv.Itoa(i))
					return out, nil
				}
				out.Adjustments = append(out.Adjustments, convert.Adjustment(a))
			}
			shown = 0
		}
	}
}
