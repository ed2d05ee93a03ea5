package api_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A top-up under an id that the platform gives itself would be taken for that move: a shard would answer
// it as applied, a fence would find its seal booked, a publish would write over its record.
func TestATopUpCannotTakeThePlatformsOwnIDs(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	for _, c := range []string{"c", "next"} {
		if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML(c, 2), OperationId: "create-" + c}); err != nil {
			t.Fatal(err)
		}
	}
	r.book("c")
	key := core.BookKey{Campaign: "c", SKU: "phone-x"}
	for _, id := range []string{
		core.FirstGrantID(key, ids.CellID("cell-1")), core.PublishRecordID(core.BookKey{Campaign: "next", SKU: "phone-x"}),
		"seal.cell-1.2.c.phone-x", "topup.0123456789abcdef", "writeoff.cell-1.2.c.phone-x", "credit:a1",
		"return.x", "rebalance.x", "limit.x", "auto.x",
	} {
		for _, dry := range []bool{true, false} {
			_, err := manager.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: id, CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: 1, ValidateOnly: dry})
			if status.Code(err) != codes.InvalidArgument || !slices.Equal(violated(err), []string{"adjustment_id"}) {
				t.Errorf("%s (dry %t): %v", id, dry, err)
			}
		}
	}
	list, err := manager.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: "c"})
	if err != nil || list.GetBooks()[0].GetReserve() != 400 {
		t.Errorf("the reserve moved: %v, %v", list, err)
	}
}
