package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// published is a rig with the campaign c on sale over two cells; file is its yaml.
func published(t *testing.T) (r *rig, manager *client.Client, file string) {
	t.Helper()
	r = newRig(t)
	r.provision(3)
	manager, file = r.as(access.CampaignManager), campaignYAML("c", 2)
	if _, err := manager.Campaigns.CreateCampaign(testkit.Deadline(t), &pb.CreateCampaignRequest{Yaml: file, OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	r.book("c")
	return r, manager, file
}

// TestPauseAndResumeOfACampaign: what each call answers, its repeat, its id reused, an old version, and
// validate_only.
func TestPauseAndResumeOfACampaign(t *testing.T) {
	r, manager, _ := published(t)
	ctx := testkit.Deadline(t)
	pause := func(op, sku string, change func(*pb.PauseCampaignRequest)) (*pb.Campaign, error) {
		in := &pb.PauseCampaignRequest{CampaignId: "c", SkuId: sku, OperationId: op, Reason: "a wrong price"}
		if change != nil {
			change(in)
		}
		out, err := manager.Campaigns.PauseCampaign(ctx, in)
		return out.GetCampaign(), err
	}
	dry, err := pause("p0", "", func(in *pb.PauseCampaignRequest) { in.ValidateOnly = true })
	if err != nil || dry.GetState() != pb.CampaignState_CAMPAIGN_STATE_PAUSED || dry.GetVersion() != 4 {
		t.Fatalf("%v, %v", dry, err)
	}
	if _, err := pause("p1", "", func(in *pb.PauseCampaignRequest) { in.ExpectedVersion = 2 }); rpcstatus.Reason(err) != "VERSION_CONFLICT" {
		t.Errorf("an old version: %v", err)
	}
	first, err := pause("p1", "phone-x", func(in *pb.PauseCampaignRequest) { in.ExpectedVersion = 3 })
	if err != nil || first.GetVersion() != 4 || !slices.Equal(first.GetPausedSkus(), []string{"phone-x"}) || first.GetState() != pb.CampaignState_CAMPAIGN_STATE_OPEN {
		t.Fatalf("%v, %v", first, err)
	}
	again, err := pause("p1", "phone-x", func(in *pb.PauseCampaignRequest) { in.ExpectedVersion = 3 })
	if err != nil || again.GetVersion() != 4 {
		t.Errorf("the same call again: %v, %v", again, err)
	}
	if _, err := pause("p1", "", nil); status.Code(err) != codes.Aborted || rpcstatus.Reason(err) != "ID_REUSED" {
		t.Errorf("the id with other parameters: %v", err)
	}
	_, err = manager.Campaigns.PauseCampaign(ctx, &pb.PauseCampaignRequest{CampaignId: "C", SkuId: "a b", ExpectedVersion: -1})
	if got := strings.Join(violated(err), " "); got != "campaign_id operation_id expected_version reason sku_id" {
		t.Errorf("every fault at once: %s", got)
	}
	if _, err := pause("p2", "tablet", nil); status.Code(err) != codes.NotFound || rpcstatus.Metadata(err)["sku_id"] != "tablet" {
		t.Errorf("an unknown SKU: %v", err)
	}
	back, err := manager.Campaigns.ResumeCampaign(ctx, &pb.ResumeCampaignRequest{CampaignId: "c", SkuId: "phone-x", OperationId: "r1"})
	if err != nil || back.GetCampaign().GetVersion() != 5 || len(back.GetCampaign().GetPausedSkus()) != 0 {
		t.Errorf("%v, %v", back, err)
	}
	if _, err := r.as(access.Viewer).Campaigns.ResumeCampaign(ctx, &pb.ResumeCampaignRequest{CampaignId: "c", OperationId: "r2"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
}

// TestUpdateOfACampaign: a draft changes wholly; a published campaign where it may, and every other
// difference is named.
func TestUpdateOfACampaign(t *testing.T) {
	_, manager, file := published(t)
	ctx := testkit.Deadline(t)
	update := func(op, yaml string) (*pb.UpdateCampaignResponse, error) {
		return manager.Campaigns.UpdateCampaign(ctx, &pb.UpdateCampaignRequest{Yaml: yaml, OperationId: op})
	}
	longer := strings.Replace(file, "refund_rule:", "display: {title: new}\nlimits: {user: {rate: 2/s}}\nrefund_rule:", 1)
	end := time.Now().UTC().Add(2 * time.Hour).Format(time.RFC3339)
	at := strings.Index(longer, "close_at: ") + len("close_at: ")
	longer = longer[:at] + end + longer[at+len(end):]
	got, err := update("u1", longer)
	if err != nil || strings.Join(got.GetChanged(), " ") != "display close_at limits" || got.GetCampaign().GetVersion() != 4 {
		t.Fatalf("%v, %v", got, err)
	}
	if again, err := update("u1", longer); err != nil || again.GetCampaign().GetVersion() != 4 {
		t.Errorf("the same call again: %v, %v", again, err)
	}
	if same, err := update("u2", longer); err != nil || len(same.GetChanged()) != 0 || same.GetCampaign().GetVersion() != 4 {
		t.Errorf("the same file under another id: %v, %v", same, err)
	}
	_, err = update("u3", strings.NewReplacer("sale_limit: 10000", "sale_limit: 9000", `"4999.00"`, `"1.00"`, "[cell-1, cell-2]", "[cell-1]").Replace(longer))
	if names := strings.Join(violated(err), " "); status.Code(err) != codes.FailedPrecondition || rpcstatus.Reason(err) != "CAMPAIGN_FROZEN" || names != "skus[0].sale_limit skus[0].price cells" {
		t.Errorf("what may not change: %s, %v", names, err)
	}
	_, err = update("u4", strings.Replace(longer, "sale_limit: 10000", "sale_limit: -1", 1))
	if names := strings.Join(violated(err), " "); status.Code(err) != codes.InvalidArgument || names != "skus[0].sale_limit" {
		t.Errorf("a broken file: %s, %v", names, err)
	}
	draft := campaignYAML("d", 2)
	if _, err := update("u5", draft); rpcstatus.Reason(err) != "UNKNOWN_CAMPAIGN" {
		t.Errorf("an unknown campaign: %v", err)
	}
	if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: draft, OperationId: "create-d"}); err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("sale_limit: 10000", "sale_limit: 9000", "[cell-1, cell-2]", "[cell-3]").Replace(draft)
	got, err = update("u6", other)
	if err != nil || got.GetCampaign().GetVersion() != 2 || got.GetCampaign().GetSpec().GetSkus()[0].GetSaleLimit() != 9000 || strings.Join(got.GetChanged(), " ") != "skus[0].sale_limit cells" {
		t.Errorf("a draft: %v, %v", got, err)
	}
	if _, err := update("u7", strings.Replace(other, "[cell-3]", "[cell-9]", 1)); strings.Join(violated(err), " ") != "cells[0]" {
		t.Errorf("an unknown cell: %v", err)
	}
}

// TestAddCellToACampaign: a cell joins once; what it cannot do is refused: its units would strand.
func TestAddCellToACampaign(t *testing.T) {
	_, manager, _ := published(t)
	ctx := testkit.Deadline(t)
	join := func(op, cell string) (*pb.AddCellResponse, error) {
		return manager.Campaigns.AddCell(ctx, &pb.AddCellRequest{CampaignId: "c", CellId: cell, OperationId: op})
	}
	got, err := join("a1", "cell-3")
	if err != nil || got.GetCampaign().GetVersion() != 4 || strings.Join(got.GetCampaign().GetSpec().GetCells(), " ") != "cell-1 cell-2 cell-3" {
		t.Fatalf("%v, %v", got, err)
	}
	if again, err := join("a2", "cell-3"); err != nil || again.GetCampaign().GetVersion() != 4 {
		t.Errorf("again: %v, %v", again, err)
	}
	if _, err := join("a3", "cell-9"); rpcstatus.Reason(err) != "UNKNOWN_CELL" {
		t.Errorf("an unknown cell: %v", err)
	}
	_, err = manager.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: "t1", CampaignId: "c", SkuId: "phone-x", CellId: "cell-3", Units: 1})
	if rpcstatus.Reason(err) != "NO_BUCKET" {
		t.Errorf("units for it: %v", err)
	}
}
