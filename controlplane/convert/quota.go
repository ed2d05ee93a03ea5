package convert

import (
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Book gives a book for the wire.
func Book(b core.Book) *pb.Book {
	return &pb.Book{
		CampaignId: string(b.Key.Campaign), SkuId: string(b.Key.SKU), SaleLimit: b.SaleLimit.Int32(), Reserve: b.Reserve.Int32(), Version: b.Version,
		LimitTarget: b.LimitTarget.Int32(), Final: b.Final,
		Allocations: mapped(b.Allocations, func(a core.Allocation) *pb.Allocation {
			return &pb.Allocation{
				CellId: string(a.Cell), Granted: a.Granted.Int32(), FenceVersion: a.FenceVersion,
				State: pb.CellState(a.State), LastNumber: a.LastNumber, WrittenOff: a.WrittenOff.Int32(),
				FirstGrant: a.FirstGrant.Int32(),
			}
		}),
	}
}

// Adjustment gives an adjustment for the wire.
func Adjustment(a core.Adjustment) *pb.Adjustment {
	return &pb.Adjustment{
		AdjustmentId: a.ID, CampaignId: string(a.Key.Campaign), SkuId: string(a.Key.SKU), CellId: string(a.Cell),
		Kind: pb.AdjustmentKind(a.Kind), Units: a.Units.Int32(), State: pb.JournalState(a.State), Outcome: pb.AdjustmentOutcome(a.Outcome),
		FenceVersion: a.FenceVersion, Number: a.Number, Actor: a.Actor, Reason: a.Reason, CreatedAt: Time(a.CreatedAt), Evidence: pb.Evidence(a.Evidence),
	}
}

// FromAdjustment reads an adjustment. The caller checks it.
func FromAdjustment(p *pb.Adjustment) (core.Adjustment, error) {
	var r reader
	a := core.Adjustment{
		ID: p.GetAdjustmentId(), Key: key(p.GetCampaignId(), p.GetSkuId()), Cell: ids.CellID(p.GetCellId()),
		Kind: enum[core.AdjustmentKind](p.GetKind()), Units: r.units("units", p.GetUnits()),
		State: enum[core.JournalState](p.GetState()), Outcome: enum[core.Outcome](p.GetOutcome()),
		Step:  core.Step{FenceVersion: p.GetFenceVersion(), Number: p.GetNumber()},
		Actor: p.GetActor(), Reason: p.GetReason(), CreatedAt: FromTime(p.GetCreatedAt()), Evidence: enum[core.Evidence](p.GetEvidence()),
	}
	return a, r.err
}

// FromOutcome reads a shard's answer.
func FromOutcome(p pb.AdjustmentOutcome) core.Outcome { return enum[core.Outcome](p) }

// Moves gives the moves of an operation or of a plan.
func Moves(moves []core.RebalanceMove) []*pb.RebalanceMove {
	return mapped(moves, func(m core.RebalanceMove) *pb.RebalanceMove {
		return &pb.RebalanceMove{SkuId: string(m.SKU), FromCellId: string(m.From), ToCellId: string(m.To), Units: m.Units.Int32(), Why: m.Why}
	})
}

// FromMoves reads moves. The caller checks them.
func FromMoves(moves []*pb.RebalanceMove) ([]core.RebalanceMove, error) {
	var r reader
	return mapped(moves, func(m *pb.RebalanceMove) core.RebalanceMove {
		return core.RebalanceMove{
			SKU: ids.SKUID(m.GetSkuId()), From: ids.CellID(m.GetFromCellId()), To: ids.CellID(m.GetToCellId()), Units: r.units("units", m.GetUnits()), Why: m.GetWhy(),
		}
	}), r.err
}
