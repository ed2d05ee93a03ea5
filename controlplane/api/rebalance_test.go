package api_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// planned is the fake of what the leader's planner proposes; cell-1 was asked for three times as much.
type planned struct {
	mu      sync.Mutex
	moves   []core.RebalanceMove
	refuses error
}

func (p *planned) set(moves []core.RebalanceMove, refuses error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moves, p.refuses = moves, refuses
}

func (p *planned) ProposeRebalance(s view.Snapshot, c core.Campaign, _ ids.SKUID) ([]core.RebalanceMove, map[ids.SKUID]int64, []string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	book, _ := s.Book(c.Key("phone-x"))
	return p.moves, map[ids.SKUID]int64{"phone-x": book.Version}, []string{"phone-x: cell cell-2: no report"}, p.refuses
}

func (p *planned) Demand(_ core.BookKey, cell ids.CellID) uint64 {
	return map[ids.CellID]uint64{"cell-1": 300, "cell-2": 100}[cell]
}

func TestRebalanceByHand(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	r.supply.set([]core.RebalanceMove{{SKU: "phone-x", From: "cell-1", To: "cell-2", Units: quantity.Must(50), Why: "cell-2 lacks 50"}}, nil)
	plan, err := r.as(access.Viewer).Quota.PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: "c"})
	if err != nil || len(plan.GetMoves()) != 1 || plan.GetMoves()[0].GetUnits() != 50 || plan.GetBookVersions()["phone-x"] != 1 || len(plan.GetSkipped()) != 1 {
		t.Fatalf("%v, %v", plan, err)
	}
	apply := &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r1", Moves: plan.GetMoves(), BookVersions: plan.GetBookVersions(), ValidateOnly: true}
	if dry, err := manager.Quota.ApplyRebalance(ctx, apply); err != nil || dry.GetOperation() != nil || len(dry.GetMoves()) != 1 {
		t.Errorf("dry run: %v, %v", dry, err)
	}
	apply.ValidateOnly = false
	for range 2 { // a repeat answers the same
		out, err := manager.Quota.ApplyRebalance(ctx, apply)
		if err != nil || out.GetOperation().GetKind() != "rebalance" || out.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_PENDING || len(out.GetMoves()) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
	}
	apply.OperationId, apply.BookVersions = "r2", map[string]int64{"phone-x": 7}
	if _, err := manager.Quota.ApplyRebalance(ctx, apply); status.Code(err) != codes.Aborted || rpcstatus.Metadata(err)["version"] != "1" {
		t.Errorf("another version of the book: %v", err)
	}
	if _, err := r.as(access.Viewer).Quota.ApplyRebalance(ctx, apply); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
}

// An empty plan is the leader's; what the first call began is what its repeat answers.
func TestRebalanceByTheLeadersPlan(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	r.supply.set([]core.RebalanceMove{{SKU: "phone-x", From: "cell-1", Units: quantity.Must(5)}}, nil)
	out, err := manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r1"})
	if err != nil || len(out.GetMoves()) != 1 || out.GetMoves()[0].GetUnits() != 5 {
		t.Fatalf("%v, %v", out, err)
	}
	r.supply.set(nil, nil)
	again, err := manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r1"})
	if err != nil || len(again.GetMoves()) != 1 || again.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_PENDING {
		t.Errorf("a repeat: %v, %v", again, err)
	}
	if _, err := manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r1", SkuId: "phone-x"}); rpcstatus.Reason(err) != "ID_REUSED" {
		t.Errorf("for one SKU under the same id: %v", err)
	}
	nothing, err := manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r2", SkuId: "phone-x"})
	if op := nothing.GetOperation(); err != nil || op.GetState() != pb.OperationState_OPERATION_STATE_DONE || !strings.Contains(op.GetDetail(), "nothing to move; left alone: phone-x: cell cell-2: no report") {
		t.Errorf("nothing to move: %v, %v", nothing, err)
	}
	if _, err := manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r3", BookVersions: map[string]int64{"phone-x": 9}}); status.Code(err) != codes.Aborted {
		t.Errorf("versions that do not hold: %v", err)
	}
	r.supply.set(nil, core.NotLeader("127.0.0.1:7"))
	_, err = manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", OperationId: "r4"})
	if rpcstatus.Reason(err) != "NOT_LEADER" || rpcstatus.Metadata(err)["leader"] != "127.0.0.1:7" {
		t.Errorf("not the leader: %v", err)
	}
}

func TestRebalanceRefusals(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	_, err := manager.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{
		CampaignId: "C", OperationId: "rebalance.x", SkuId: "phone-x", BookVersions: map[string]int64{"phone-x": 0},
		Moves: []*pb.RebalanceMove{{SkuId: "phone-x", Units: 0}, {SkuId: "!", FromCellId: "cell-1", ToCellId: "CELL", Units: 1, Why: strings.Repeat("x", 257)}},
	})
	want := []string{
		"operation_id", "campaign_id", "moves[0].units", "moves[0].to_cell_id", "moves[1].sku_id", "moves[1].to_cell_id", "moves[1].why", "book_versions.phone-x", "sku_id",
	}
	if got := violated(err); !slices.Equal(got, want) {
		t.Errorf("every fault at once: %v, want %v", got, want)
	}
	if _, err := manager.Quota.PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: "d"}); rpcstatus.Reason(err) != "UNKNOWN_CAMPAIGN" {
		t.Errorf("unknown campaign: %v", err)
	}
	if _, err := manager.Quota.PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: "c", SkuId: "tablet"}); rpcstatus.Reason(err) != "UNKNOWN_SKU" {
		t.Errorf("unknown SKU: %v", err)
	}
	if _, err := manager.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "close", Reason: "over"}); err != nil {
		t.Fatal(err)
	}
	r.caughtUp()
	if _, err := manager.Quota.PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: "c"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a closed campaign: %v", err)
	}
}

// DEMAND: before anything was sold the cells' weights cut, and the preview says so; on sale it shows what was
// asked of each cell, and cuts by that.
func TestPreviewSplitByDemand(t *testing.T) {
	r, manager := selling(t)
	ctx := testkit.Deadline(t)
	text := strings.Replace(campaignYAML("fresh", 2), "  reserve: 400\n", "  reserve: 400\n  split: {policy: DEMAND}\n", 1)
	fresh, err := manager.Quota.PreviewSplit(ctx, &pb.PreviewSplitRequest{Yaml: text})
	if err != nil || len(fresh.GetRows()) != 2 || fresh.GetRows()[0].GetUnits() != 4800 || fresh.GetRows()[0].GetDemand() != 0 {
		t.Fatalf("%v, %v", fresh, err)
	}
	if !slices.ContainsFunc(fresh.GetWarnings(), func(w string) bool { return strings.Contains(w, "no demand was seen") }) {
		t.Errorf("warnings %v", fresh.GetWarnings())
	}
	if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: text, OperationId: "create"}); err != nil {
		t.Errorf("a campaign with DEMAND is refused: %v", err)
	}
	live, err := manager.Quota.PreviewSplit(ctx, &pb.PreviewSplitRequest{CampaignId: "c"})
	if rows := live.GetRows(); err != nil || len(rows) != 2 || rows[0].GetDemand() != 300 || rows[1].GetDemand() != 100 || rows[0].GetUnits() != 4800 {
		t.Errorf("EQUAL on sale: %v, %v", live, err)
	}
	r.supply.set(nil, nil)
	again := strings.Replace(text, "campaign_id: fresh", "campaign_id: c", 1)
	byDemand, err := manager.Quota.PreviewSplit(ctx, &pb.PreviewSplitRequest{Yaml: again})
	if rows := byDemand.GetRows(); err != nil || len(rows) != 2 || rows[0].GetUnits() != 7200 || rows[1].GetUnits() != 2400 {
		t.Errorf("DEMAND on sale: %v, %v", byDemand, err)
	}
}
