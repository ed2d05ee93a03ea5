package api_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// selling is a published campaign of two living cells over a replica that does not lead: what it accepts
// is an intent that the leader finishes.
func selling(t *testing.T) (*rig, *client.Client) {
	r := newRig(t)
	r.provision(2)
	manager := r.as(access.CampaignManager)
	if _, err := manager.Campaigns.CreateCampaign(testkit.Deadline(t), &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	r.book("c")
	r.alive()
	return r, manager
}

func TestReturnAndTransfer(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	back := &pb.ReturnUnitsRequest{AdjustmentId: "r1", CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: 100, Reason: "slow there"}
	out, err := manager.Quota.ReturnUnits(ctx, back)
	if a := out.GetAdjustment(); err != nil || a.GetState() != pb.JournalState_JOURNAL_STATE_PROPOSED || a.GetKind() != pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN ||
		a.GetNumber() != 2 || out.GetBook().GetReserve() != 400 || out.GetOperationId() != "r1" {
		t.Fatalf("%v, %v", out, err)
	}
	give := &pb.TransferUnitsRequest{AdjustmentId: "t1", CampaignId: "c", SkuId: "phone-x", FromCellId: "cell-1", ToCellId: "cell-2", Units: 50, ValidateOnly: true}
	if dry, err := manager.Quota.TransferUnits(ctx, give); err != nil || dry.GetOperation() != nil {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	give.ValidateOnly = false
	moved, err := manager.Quota.TransferUnits(ctx, give)
	if err != nil || moved.GetOperation().GetKind() != "transfer-units" || moved.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_RUNNING {
		t.Fatalf("%v, %v", moved, err)
	}
	r.caughtUp()
	list, err := manager.Quota.ListAdjustments(ctx, &pb.ListAdjustmentsRequest{CampaignId: "c"})
	if err != nil || len(list.GetAdjustments()) != 2 || list.GetAdjustments()[0].GetAdjustmentId() != "t1.return" {
		t.Errorf("history: %v, %v", list, err)
	}
	if _, err := manager.Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "t1", Reason: "no"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("what a transfer began must be finished: %v", err)
	}
	wrong := &pb.TransferUnitsRequest{AdjustmentId: "", CampaignId: "C", SkuId: "phone-x", FromCellId: "cell-1", ToCellId: "cell-1", ExpectedVersion: -1}
	if _, err := manager.Quota.TransferUnits(ctx, wrong); !slices.Equal(violated(err), []string{"adjustment_id", "campaign_id", "units", "expected_version", "to_cell_id"}) {
		t.Errorf("every fault at once: %v", violated(err))
	}
	if _, err := r.as(access.Viewer).Quota.ReturnUnits(ctx, back); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
}

// K29 at the border: what cannot be a limit is INVALID_ARGUMENT; below the floor FAILED_PRECONDITION with it.
func TestK29SetSaleLimitRefusals(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	for _, n := range []int32{0, -1, 1_000_000_001} {
		_, err := manager.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{OperationId: "l1", CampaignId: "c", SkuId: "phone-x", SaleLimit: n, Reason: "x"})
		if status.Code(err) != codes.InvalidArgument || !slices.Equal(violated(err), []string{"sale_limit"}) {
			t.Errorf("%d: %v", n, err)
		}
	}
	for _, id := range []string{"", "limit.1", "publish.c.phone-x"} {
		_, err := manager.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{OperationId: id, CampaignId: "c", SkuId: "phone-x", SaleLimit: 1, Reason: "x"})
		if !slices.Equal(violated(err), []string{"operation_id"}) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	r.shards.sold(2_000, 500)
	_, err := manager.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{OperationId: "l1", CampaignId: "c", SkuId: "phone-x", SaleLimit: 4_999, Reason: "x"})
	if rpcstatus.Reason(err) != "BELOW_FLOOR" || rpcstatus.Metadata(err)["floor"] != "5000" || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("below the floor: %v", err)
	}
	dry, err := manager.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{OperationId: "l1", CampaignId: "c", SkuId: "phone-x", SaleLimit: 5_000, Reason: "x", ValidateOnly: true})
	if err != nil || dry.GetFloor() != 5_000 || dry.GetBook().GetLimitTarget() != 5_000 || dry.GetBook().GetSaleLimit() != 9_600 || dry.GetOperation() != nil {
		t.Errorf("dry run: %v, %v", dry, err)
	}
	out, err := manager.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{OperationId: "l1", CampaignId: "c", SkuId: "phone-x", SaleLimit: 9_900, Reason: "x"})
	if err != nil || out.GetBook().GetReserve() != 300 || out.GetOperation().GetKind() != "set-sale-limit" {
		t.Errorf("%v, %v", out, err)
	}
}
