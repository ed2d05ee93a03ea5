package api_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// K23: of every call that moves units, the same id with the same parameters answers the same and moves nothing
// more; with other parameters it is a conflict that moves nothing; and without an id it is refused by its name.
func TestK23TheSameIDOfEveryQuotaMutation(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	for _, c := range []struct {
		name, field   string
		first, others int32 // units, or the limit
		call          func(id string, units int32) (proto.Message, error)
	}{
		{"TopUp", "adjustment_id", 7, 8, func(id string, units int32) (proto.Message, error) {
			return manager.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: id, CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: units})
		}},
		{"ReturnUnits", "adjustment_id", 7, 8, func(id string, units int32) (proto.Message, error) {
			return manager.Quota.ReturnUnits(ctx, &pb.ReturnUnitsRequest{AdjustmentId: id, CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: units})
		}},
		{"TransferUnits", "adjustment_id", 7, 8, func(id string, units int32) (proto.Message, error) {
			return manager.Quota.TransferUnits(ctx, &pb.TransferUnitsRequest{AdjustmentId: id, CampaignId: "c", SkuId: "phone-x", FromCellId: "cell-1", ToCellId: "cell-2", Units: units})
		}},
		{"SetSaleLimit", "operation_id", 9_990, 9_980, func(id string, units int32) (proto.Message, error) {
			return manager.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{OperationId: id, CampaignId: "c", SkuId: "phone-x", SaleLimit: units, Reason: "r"})
		}},
		{"ApplyRebalance", "operation_id", 7, 8, func(id string, units int32) (proto.Message, error) {
			return manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{OperationId: id, CampaignId: "c", Moves: []*pb.RebalanceMove{{SkuId: "phone-x", FromCellId: "cell-1", ToCellId: "cell-2", Units: units}}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := "id-" + c.name
			before := r.moved()
			answer, err := c.call(id, c.first)
			if err != nil {
				t.Fatal(err)
			}
			after := r.moved()
			if before == after {
				t.Fatal("the call moved nothing")
			}
			if again, err := c.call(id, c.first); err != nil || !proto.Equal(again, answer) {
				t.Errorf("a repeat: %v, %v; want %v", again, err, answer)
			}
			_, err = c.call(id, c.others)
			if status.Code(err) != codes.Aborted || rpcstatus.Reason(err) != "ID_REUSED" {
				t.Errorf("other parameters: %v", err)
			}
			_, err = c.call("", c.others)
			if status.Code(err) != codes.InvalidArgument || !slices.Equal(violated(err), []string{c.field}) {
				t.Errorf("no id: %v", err)
			}
			if now := r.moved(); now != after {
				t.Errorf("repeats and refusals moved something: %s\nwant %s", now, after)
			}
		})
	}
}

// moved tells everything that a mutation writes: the book, the journal, and the operations.
func (r *rig) moved() string {
	r.t.Helper()
	r.caughtUp()
	book, err := r.store.Book(testkit.Deadline(r.t), core.BookKey{Campaign: "c", SKU: "phone-x"})
	if err != nil {
		r.t.Fatal(err)
	}
	s := r.view.Snapshot()
	return fmt.Sprintf("%+v\n%+v\n%+v", book, s.OpenRecords(), s.Operations(0, 100))
}
