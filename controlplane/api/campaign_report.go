package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// CampaignReports makes or reads a campaign's report; campaignreport.Reader implements it.
type CampaignReports interface {
	Read(ctx context.Context, campaign core.Campaign) (campaignreport.Report, core.ArchiveObject, error)
}

// GetCampaignReport answers a campaign's whole account, live or from the archive.
func (h *Reports) GetCampaignReport(ctx context.Context, req *pb.GetCampaignReportRequest) (*pb.GetCampaignReportResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, known := h.cells.View.Snapshot().Campaign(id)
	if !known {
		return nil, unknownCampaign(id)
	}
	report, object, err := h.campaignReports.Read(ctx, campaign)
	if err != nil {
		return nil, err
	}
	if h.accountMetrics != nil && (campaign.State == core.CampaignClosed || campaign.State == core.CampaignSettled) {
		h.accountMetrics.Account(id, report.SKUs)
	}
	for range report.Breaches {
		h.breaches.WithLabelValues(string(verify.I10)).Inc()
	}
	out := reported(report)
	out.State = pb.CampaignState(campaign.ReadState(report.TakenAt)) // an archived one's depends on no clock
	if object.Name != "" {
		out.Archived = &pb.ArchivedObject{Name: object.Name, Sha256: object.SHA256, Size: object.Size}
	}
	return out, nil
}

// i10 says what the verdict of a report is about.
const i10 = "sale_limit = confirmed + unsold by cause; rows, ledgers and orders of every cell agree"

func reported(r campaignreport.Report) *pb.GetCampaignReportResponse {
	out := &pb.GetCampaignReportResponse{
		CampaignId: string(r.Campaign), Owner: r.Owner, EndedAt: timestamppb.New(r.Ended), TakenAt: timestamppb.New(r.TakenAt),
		CancelledByOperation: r.Cancelled, Check: &pb.Check{Invariant: string(verify.I10), Verdict: verdicts[r.Verdict], Detail: i10},
	}
	if !r.Published.IsZero() {
		out.PublishedAt = timestamppb.New(r.Published)
	}
	for _, a := range r.SKUs {
		out.Skus = append(out.Skus, &pb.SkuReport{
			SkuId: string(a.SKU), SaleLimit: int32(a.SaleLimit), Confirmed: int32(a.Confirmed), Causes: causeUnits(a.ByCause()), Cells: causeUnits(a.Cells),
			Counts: reportCounts(r.Of(a.SKU)),
		})
	}
	for _, c := range r.Cells {
		out.Cells = append(out.Cells, &pb.CellReport{
			CellId: string(c.Cell), SkuId: string(c.SKU), Allocated: int32(c.Allocated), WrittenOff: int32(c.WrittenOff), Granted: int32(c.Stock.Granted),
			Available: int32(c.Stock.Available), Reserved: int32(c.Stock.Reserved), Confirmed: int32(c.Stock.Confirmed), Released: c.Stock.Released, Entries: c.Stock.Entries,
			Counts: reportCounts(c.Counts),
		})
	}
	for _, b := range r.Breaches {
		out.Breaches = append(out.Breaches, &pb.Breach{Invariant: string(verify.I10), CampaignId: string(r.Campaign), SkuId: string(b.SKU), CellId: string(b.Cell), Detail: b.Detail})
	}
	for _, u := range r.Unread {
		out.Unchecked = append(out.Unchecked, &pb.Unchecked{Invariant: string(verify.I10), What: "cell " + string(u.Cell), Why: u.Why})
	}
	return out
}

func reportCounts(c campaignreport.Counts) *pb.ReportCounts {
	out := &pb.ReportCounts{Reversals: c.Reversals}
	for _, r := range c.Requests {
		out.Requests = append(out.Requests, &pb.RequestCount{Outcome: r.Outcome, Reason: r.Reason, Requests: r.Requests, Units: r.Units})
	}
	for _, s := range c.Sales {
		out.Orders = append(out.Orders, &pb.OrderCount{State: orderStates[s.State], Orders: s.Orders, Units: s.Units, Amount: &pb.Money{Amount: s.Amount, Currency: s.Currency}})
	}
	for _, f := range c.Refunds {
		out.Refunds = append(out.Refunds, &pb.RefundCount{
			State: f.State, Cause: f.Cause, Refunds: f.Refunds, Restocked: f.Restocked, Amount: &pb.Money{Amount: f.Amount, Currency: f.Currency},
		})
	}
	for _, f := range c.Findings {
		out.Findings = append(out.Findings, &pb.FindingCount{Kind: f.Kind, State: f.State, Action: f.Action, Findings: f.Findings, Units: f.Units})
	}
	return out
}
