package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/preflight"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Shadow asks one process of a cell. It implements preflight.Processes.
func (m Mirrors) Shadow(ctx context.Context, address string, campaign ids.CampaignID) (out *pb.ShadowResponse, err error) {
	err = m.askOne(ctx, address, func(ctx context.Context, c pb.CellFactsServiceClient) error {
		out, err = c.Shadow(ctx, &pb.ShadowRequest{CampaignId: string(campaign)})
		return err
	})
	return out, err
}

// PreflightCampaign asks every process and every edge whether it could serve the
// campaign now. Edges are those that follow this replica's routes.
func (h *Campaigns) PreflightCampaign(ctx context.Context, req *pb.PreflightCampaignRequest) (*pb.PreflightCampaignResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	campaign, known := s.Campaign(id)
	if !known {
		return nil, unknownCampaign(id)
	}
	out := &pb.PreflightCampaignResponse{Ready: true, Version: campaign.Version}
	for _, row := range h.Preflight.Run(ctx, s, campaign) {
		out.Ready = out.Ready && row.Ready()
		out.Rows = append(out.Rows, preflightRow(row))
	}
	return out, nil
}

func preflightRow(r preflight.Row) *pb.PreflightRow {
	out := &pb.PreflightRow{
		Kind: "cell", CellId: string(r.Cell), InstanceId: r.Instance, Ready: r.Ready(), Version: r.Version, Keys: r.Keys, Library: r.Library, Faults: r.Faults,
	}
	if r.Cell == "" {
		out.Kind = "edge"
	}
	if r.Build != (ids.Build{}) {
		out.Build = &pb.Build{FenceVersion: r.Build.Fence, Count: r.Build.Count}
	}
	return out
}
