package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Supply says what the cells' reports advise; planner.Planner implements it.
type Supply interface {
	// ProposeRebalance plans moves of a campaign's SKUs (all for ""), with the
	// versions of the books they were made from and what was left out. It changes
	// nothing. core.ErrNotLeader where this replica does not lead.
	ProposeRebalance(s view.Snapshot, c core.Campaign, only ids.SKUID) (moves []core.RebalanceMove, versions map[ids.SKUID]int64, skipped []string, err error)
	// Demand tells how many units of a SKU were asked of a cell so far; 0 where this
	// replica hears no reports.
	Demand(key core.BookKey, cell ids.CellID) uint64
}

// demand is that of a campaign's SKUs: none where it was never on sale.
func (h *Quota) demand(s view.Snapshot, id ids.CampaignID) core.Demand {
	return func(sku ids.SKUID, cell ids.CellID) uint64 {
		key := core.BookKey{Campaign: id, SKU: sku}
		if _, booked := s.Book(key); !booked || h.Supply == nil {
			return 0
		}
		return h.Supply.Demand(key, cell)
	}
}

// PlanRebalance proposes moves. Any replica answers, with the leader's plan.
func (h *Quota) PlanRebalance(ctx context.Context, req *pb.PlanRebalanceRequest) (*pb.PlanRebalanceResponse, error) {
	var f fields
	id, sku := f.campaign(req.GetCampaignId()), f.anySKU(req.GetSkuId())
	if err := f.err(); err != nil {
		return nil, err
	}
	return h.plan(ctx, id, sku)
}

// plan asks the leader. core.ErrNotLeader with its address where it does not answer.
func (h *Quota) plan(ctx context.Context, id ids.CampaignID, sku ids.SKUID) (*pb.PlanRebalanceResponse, error) {
	s := h.View.Snapshot()
	campaign, known := s.Campaign(id)
	switch now := h.Intent.Clock.Now(); {
	case !known:
		return nil, unknownCampaign(id)
	case !campaign.OnSale(now):
		return nil, campaign.Refuses(now)
	case sku != "" && !slices.ContainsFunc(campaign.Spec.SKUs, func(k core.SKUSpec) bool { return k.ID == sku }):
		return nil, rpcstatus.With(fmt.Errorf("%w: %s/%s", core.ErrUnknownSKU, id, sku), map[string]string{"sku_id": string(sku)}, nil, 0)
	}
	if out, ok := fromLeader(ctx, h.Cells, func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.PlanRebalanceResponse, error) {
		return pb.NewQuotaServiceClient(leader).PlanRebalance(ctx, &pb.PlanRebalanceRequest{CampaignId: string(id), SkuId: string(sku)})
	}); ok {
		return out, nil
	}
	moves, versions, skipped, err := h.Supply.ProposeRebalance(s, campaign, sku)
	if err != nil {
		return nil, err
	}
	out := &pb.PlanRebalanceResponse{Moves: convert.Moves(moves), BookVersions: map[string]int64{}, Skipped: skipped}
	for sku, v := range versions {
		out.BookVersions[string(sku)] = v
	}
	return out, nil
}

// ApplyRebalance stores a plan as an operation, which the leader carries out. The
// caller's plan, or, for none, the leader's of this moment.
func (h *Quota) ApplyRebalance(ctx context.Context, req *pb.ApplyRebalanceRequest) (*pb.ApplyRebalanceResponse, error) {
	var f fields
	in := intent.Rebalance{
		OperationID: f.own("operation_id", req.GetOperationId()), Campaign: f.campaign(req.GetCampaignId()),
		Moves: f.moves(req.GetMoves()), Versions: f.bookVersions(req.GetBookVersions()), Reason: f.reason(req.GetReason(), false),
	}
	sku := f.anySKU(req.GetSkuId())
	if sku != "" && len(in.Moves) > 0 {
		f.add("sku_id", "belongs to an empty plan: each move names its SKU")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	in.Parameters = intent.RebalanceParameters(in.Campaign, sku, in.Moves)
	if len(in.Moves) == 0 {
		// A repeat answers what the first call began, not what it would begin now.
		stands, taken, err := h.Intent.AcceptedRebalance(ctx, in.OperationID, in.Parameters)
		if err != nil {
			return nil, err
		}
		if taken {
			return accepted(in.OperationID, stands, stands.Moves), nil
		}
		if err := h.fill(ctx, &in, sku); err != nil {
			return nil, err
		}
	}
	op, err := h.Intent.ApplyRebalance(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	moves := in.Moves
	if op.ID != "" {
		moves = op.Moves
	}
	return accepted(in.OperationID, op, moves), nil
}

// fill takes the leader's plan. Versions that the caller gave stand against its.
func (h *Quota) fill(ctx context.Context, in *intent.Rebalance, sku ids.SKUID) error {
	plan, err := h.plan(ctx, in.Campaign, sku)
	if err != nil {
		return err
	}
	if in.Moves, err = convert.FromMoves(plan.GetMoves()); err != nil {
		return err
	}
	for sku, planned := range plan.GetBookVersions() {
		id := ids.SKUID(sku)
		if want := in.Versions[id]; want != 0 && want != planned {
			return core.VersionConflict(want, planned)
		}
		in.Versions[id] = planned
	}
	in.Empty = "nothing to move"
	if skipped := plan.GetSkipped(); len(skipped) > 0 {
		in.Empty += "; left alone: " + strings.Join(skipped[:min(len(skipped), 10)], "; ")
	}
	return nil
}

func accepted(id string, op core.Operation, moves []core.RebalanceMove) *pb.ApplyRebalanceResponse {
	out := &pb.ApplyRebalanceResponse{OperationId: id, Moves: convert.Moves(moves)}
	if op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	return out
}

// anySKU reads a SKU that may be empty for all.
func (f *fields) anySKU(s string) ids.SKUID {
	if s == "" {
		return ""
	}
	return f.sku(s)
}

// maxWhy bounds the words of one move: a plan of them is one value in etcd.
const maxWhy = 256

// moves reads a caller's plan.
func (f *fields) moves(moves []*pb.RebalanceMove) []core.RebalanceMove {
	if len(moves) > core.MaxRebalanceMoves {
		f.add("moves", fmt.Sprintf("must be at most %d", core.MaxRebalanceMoves))
		return nil
	}
	var out []core.RebalanceMove
	for i, m := range moves {
		var own fields
		move := core.RebalanceMove{SKU: own.sku(m.GetSkuId()), Units: own.units("units", m.GetUnits()), Why: m.GetWhy()}
		if m.GetFromCellId() != "" {
			move.From = own.cellIn("from_cell_id", m.GetFromCellId())
		}
		if m.GetToCellId() != "" {
			move.To = own.cellIn("to_cell_id", m.GetToCellId())
		}
		if m.GetFromCellId() == m.GetToCellId() {
			own.add("to_cell_id", "must be another place than from_cell_id")
		}
		if len(m.GetWhy()) > maxWhy {
			own.add("why", "must be at most 256 bytes")
		}
		for _, v := range own.violations {
			f.add(fmt.Sprintf("moves[%d].%s", i, v.Field), v.Rule)
		}
		out = append(out, move)
	}
	return out
}

func (f *fields) bookVersions(versions map[string]int64) map[ids.SKUID]int64 {
	out := map[ids.SKUID]int64{}
	for _, sku := range sortedKeys(versions) {
		if versions[sku] < 1 {
			f.add("book_versions."+sku, "must be at least 1")
		}
		out[ids.SKUID(sku)] = versions[sku]
	}
	return out
}
