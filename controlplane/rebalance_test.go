package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// putCampaign stores a campaign on sale whose SKU has no book.
func putCampaign(t *testing.T, etcd *testkit.EtcdCluster) {
	t.Helper()
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	open := clock.System().Now().Add(-time.Minute)
	spec := core.CampaignSpec{
		ID: "c", OpenAt: open, CloseAt: open.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
		HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
		Permits: core.PermitRules{ClaimFrom: open, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-1"},
		SKUs: []core.SKUSpec{{
			ID: "phone-x", PhysicalStock: quantity.Must(10), SaleLimit: quantity.Must(10), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "EUR"},
			Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
		}},
	}
	_, err = s.Update(testkit.Deadline(t), "put", func(tx *store.Tx) error {
		if _, _, err := tx.Campaign("c"); err != nil {
			return err
		}
		return tx.PutCampaign(core.Campaign{Spec: spec, State: core.CampaignPublished, Version: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A plan is made from reports, which the leader alone hears: the other replica answers with the leader's, and
// where that does not answer, it makes up nothing and says whom to ask.
func TestAnyReplicaAnswersWithTheLeadersPlan(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	putCell(t, etcd)
	putCampaign(t, etcd)
	port := testkit.FreePort(t)
	wire := fault.New(t, fmt.Sprintf("127.0.0.1:%d", port))
	a, _ := replica(t, etcd, "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", port), "--advertise-addr", wire.Addr())
	ready(t, a)
	b, _ := replica(t, etcd)
	ready(t, b)
	follower := dial(t, b, client.Options{Token: "token"})
	ctx := testkit.Deadline(t)
	testkit.Eventually(t, 20*time.Second, func() error {
		plan, err := follower.Quota.PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: "c"})
		if err != nil || len(plan.GetSkipped()) != 1 || plan.GetSkipped()[0] != "phone-x: it has no book yet" {
			return fmt.Errorf("%v, %w", plan, err)
		}
		return nil
	})
	applied, err := follower.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r1"})
	if err != nil || applied.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_DONE {
		t.Errorf("%v, %v", applied, err)
	}
	wire.Silence(fault.BothWays)
	_, err = follower.Quota.PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: "c"})
	if rpcstatus.Reason(err) != "NOT_LEADER" || rpcstatus.Metadata(err)["leader"] != wire.Addr() {
		t.Errorf("the leader is silent: %v", err)
	}
	// What was accepted before is answered by any replica.
	if again, err := follower.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r1"}); err != nil || again.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_DONE {
		t.Errorf("a repeat: %v, %v", again, err)
	}
}
