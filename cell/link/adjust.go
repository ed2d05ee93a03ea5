package link

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var kinds = map[pb.AdjustmentKind]shard.AdjustmentKind{
	pb.AdjustmentKind_ADJUSTMENT_KIND_GRANT:  shard.Grant,
	pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN: shard.Return,
}

// adjust applies one numbered adjustment. A return takes its units out of the mirror first, so that no
// new admission is promised them; the shard decides; what it refused goes back by the same id.
func (s *session) adjust(ctx context.Context, d *pb.Directive, in *pb.AdjustmentOrder) (*pb.DirectiveResult, error) {
	campaign, sku, err := parseStock(in.GetCampaignId(), in.GetSkuId())
	if err != nil {
		return nil, err
	}
	kind, ok := kinds[in.GetKind()]
	if !ok {
		return nil, fmt.Errorf("%w: kind must be GRANT or RETURN", shard.ErrInvalid)
	}
	a := shard.Adjustment{
		ID: in.GetAdjustmentId(), Campaign: campaign, SKU: sku, FenceVersion: d.GetFenceVersion(), Number: in.GetNumber(),
		Kind: kind, Units: in.GetUnits(), Void: in.GetVoid(), TermCount: d.GetTerm().GetCount(), TermID: d.GetTerm().GetId(),
		BookRecordID: in.GetBookRecordId(),
	}
	if w, ok := s.Shard.Writer(); ok && kind == shard.Return && !a.Void && a.FenceVersion == w.FenceVersion {
		s.debit(ctx, a)
	}
	result, err := s.Shard.ApplyAdjustment(ctx, a)
	if err != nil {
		return nil, err
	}
	if kind == shard.Return && result.Outcome != shard.Applied {
		s.credit(ctx, a)
	}
	s.Logger.InfoContext(ctx, "adjustment decided", telemetry.Event, "link_adjustment", telemetry.AdjustmentID, a.ID, telemetry.CampaignID, campaign,
		telemetry.SKUID, sku, telemetry.FenceVersion, a.FenceVersion, "number", a.Number, "kind", kind, "units", a.Units,
		"outcome", result.Outcome, "replayed", result.Replayed)
	return &pb.DirectiveResult{
		DirectiveId: d.GetDirectiveId(), Done: true, Stock: protoStock(result.Stock),
		Outcome: pb.AdjustmentOutcome(pb.AdjustmentOutcome_value["ADJUSTMENT_OUTCOME_"+string(result.Outcome)]),
	}, nil
}

// debit asks the mirror first. Whatever it answers, the shard decides: a mirror that is away admits
// nothing, and the shard's commit leaves the same debit as an effect under the same id.
func (s *session) debit(ctx context.Context, a shard.Adjustment) {
	if r, ok := s.returned(a); ok {
		if out, err := s.Mirror.DebitReturn(ctx, r); err != nil {
			s.Logger.WarnContext(ctx, "the mirror was not debited first", telemetry.Event, "link_debit_failed", telemetry.AdjustmentID, a.ID,
				telemetry.Error, err.Error(), "change", out.Change.String())
		}
	}
}

// credit gives a refused return's units back at once. If it fails the shard's effect does it.
func (s *session) credit(ctx context.Context, a shard.Adjustment) {
	if r, ok := s.returned(a); ok {
		if _, err := s.Mirror.CreditReturn(ctx, r); err != nil {
			s.Logger.WarnContext(ctx, "the mirror's debit is undone by its effect later", telemetry.Event, "link_credit_failed",
				telemetry.AdjustmentID, a.ID, telemetry.Error, err.Error())
		}
	}
}

// returned is the return as the mirror takes it; false: this cell has no rules for it yet, hence no
// mirror.
func (s *session) returned(a shard.Adjustment) (admission.Return, bool) {
	c, ok := s.Rules.Current().Campaign(a.Campaign)
	if !ok || a.Units < 1 || a.Number < 1 {
		return admission.Return{}, false
	}
	return admission.Return{Scope: scopeOf(a.Campaign, a.SKU, c.PerSKU), SKU: a.SKU, AdjustmentID: a.ID, Number: a.Number, Units: a.Units}, true
}
