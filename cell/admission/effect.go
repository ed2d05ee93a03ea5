package admission

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// Effect is one effect of the shard and the build that the shard had raised for
// the mirror when the effect's row was claimed.
type Effect struct {
	Scope  Scope
	Build  ids.Build // zero: the shard never raised one; nothing can be applied
	Effect *eventsv1.MirrorEffect
}

// EffectResult is what became of an Effect.
type EffectResult struct {
	Change Change
	Stock  int64 // of the mirror afterwards, when it was reached
	Err    error // Unchanged: why; ErrUnavailable may have happened
}

var effectFunction = function[Effect, EffectResult]{
	name: "cq2_effect",
	render: func(e Effect) ([]string, []any) {
		m, k := e.Effect, e.Scope.at(e.Build)
		sku := ids.SKUID(m.GetSkuId())
		winnerSKU := m.GetWinnerSkuId()
		if winnerSKU == "" {
			winnerSKU = m.GetSkuId()
		}
		keys := []string{
			e.Scope.metaKey(), k.stock(sku), k.marks(), k.applied(),
			k.record(sku, ids.RequestID(m.GetRequestId()), ids.UserID(m.GetUserId())),
			k.outstanding(sku), k.pending(sku), k.stats(sku),
		}
		return keys, []any{
			e.Build.String(), m.GetSkuId(), m.GetUserId(), m.GetRequestId(), m.GetReservationId(), m.GetEffectId(),
			m.GetStockDelta(), m.GetStockVersion(), admissionBuild(m), m.GetSettle(), int32(m.GetMark()),
			m.GetWinnerReservationId(), m.GetWinnerRequestId(), winnerSKU, int32(m.GetState()), int32(m.GetReason()),
			m.GetOrderId(), m.GetExpiresAtMs(), m.GetAggregateVersion(),
		}
	},
	decode: func(r reply) (EffectResult, error) {
		r.arity(2)
		return EffectResult{Change: Change(r.code(int(OlderBuild))), Stock: r.int(1)}, nil
	},
}

func admissionBuild(m *eventsv1.MirrorEffect) string {
	if m.GetAdmissionBuild() == nil {
		return ""
	}
	return ids.Build{Fence: m.GetAdmissionBuild().GetFenceVersion(), Count: m.GetAdmissionBuild().GetCount()}.String()
}

// ApplyEffects applies effects in one pipeline, in order, and answers in the same
// order. Change.Done tells which need no further delivery; a repeat changes
// nothing. An effect whose SKU is not its scope's is ErrInvalidAsk.
func (c *Client) ApplyEffects(ctx context.Context, effects []Effect) []EffectResult {
	results := make([]EffectResult, len(effects))
	ins, at := make([]Effect, 0, len(effects)), make([]int, 0, len(effects))
	for i, e := range effects {
		if err := e.check(); err != nil {
			results[i].Err = err
			continue
		}
		if e.Build.IsZero() {
			results[i].Change = Absent
			continue
		}
		ins, at = append(ins, e), append(at, i)
	}
	outs, errs := effectFunction.run(ctx, c, c.maint, ins)
	for n, i := range at {
		results[i] = outs[n]
		results[i].Err = errs[n]
	}
	c.holdSettled(ctx, effects, results)
	return results
}

func (e Effect) check() error {
	m := e.Effect
	if m.GetEffectId() == "" || m.GetCampaignId() != string(e.Scope.Campaign) ||
		(e.Scope.SKU != "" && m.GetSkuId() != string(e.Scope.SKU)) {
		return fmt.Errorf("%w: effect %.80q is not of the mirror %s", ErrInvalidAsk, m.GetEffectId(), e.Scope.Tag())
	}
	if m.GetMark() == eventsv1.MarkAction_MARK_ACTION_SET_WINNER && m.GetWinnerReservationId() == "" {
		return fmt.Errorf("%w: effect %.80q: winner_reservation_id must not be empty", ErrInvalidAsk, m.GetEffectId())
	}
	return nil
}

// returnCall is a debit or its credit.
type returnCall struct {
	scope      Scope
	build      ids.Build
	sku        ids.SKUID
	adjustment string
	units      int32
	number     int64
}

func (a returnCall) keys() []string {
	k := a.scope.at(a.build)
	return []string{a.scope.metaKey(), k.stock(a.sku), k.marks(), k.applied()}
}

var debitFunction = function[returnCall, EffectResult]{
	name: "cq2_debit",
	render: func(a returnCall) ([]string, []any) {
		return a.keys(), []any{a.build.String(), string(a.sku), a.adjustment, a.units, a.number}
	},
	decode: effectFunction.decode,
}

var creditFunction = function[returnCall, EffectResult]{
	name: "cq2_credit",
	render: func(a returnCall) ([]string, []any) {
		return a.keys(), []any{a.build.String(), string(a.sku), a.adjustment}
	},
	decode: effectFunction.decode,
}

// Return is one numbered RETURN of units, on its way from this cell.
type Return struct {
	Scope        Scope
	SKU          ids.SKUID
	AdjustmentID string
	Number       int64 // of the adjustment, at least 1
	Units        int32 // at least 1
}

// DebitReturn takes a return's units from the mirror before the shard is asked, so
// that no new admission is promised them. Applied and Already: taken, once.
// StaleNumber: the mirror counted this number already (its base is later), nothing
// taken. Absent: there is no mirror to debit. In every case the shard decides; its
// effect under the same id changes nothing where the debit was taken.
func (c *Client) DebitReturn(ctx context.Context, r Return) (EffectResult, error) {
	if r.Units < 1 || r.Number < 1 {
		return EffectResult{}, fmt.Errorf("%w: a return needs a number and units of at least 1", ErrInvalidAsk)
	}
	return c.adjust(ctx, debitFunction, r)
}

// CreditReturn gives a debit back after the shard refused or voided the return; the
// mirror knows how many units it was, so Number and Units are not looked at. NotHeld:
// this mirror never took it, and never will. The shard's effect "credit:ID" does the same and counts
// as the same.
func (c *Client) CreditReturn(ctx context.Context, r Return) (EffectResult, error) {
	return c.adjust(ctx, creditFunction, r)
}

func (c *Client) adjust(ctx context.Context, f function[returnCall, EffectResult], r Return) (EffectResult, error) {
	if r.AdjustmentID == "" {
		return EffectResult{}, fmt.Errorf("%w: a return needs an id", ErrInvalidAsk)
	}
	build, err := c.metaBuild(ctx, r.Scope)
	if err != nil {
		return EffectResult{}, err
	}
	if build.IsZero() {
		return EffectResult{Change: Absent}, nil
	}
	return f.one(ctx, c, c.maint, returnCall{r.Scope, build, r.SKU, r.AdjustmentID, r.Units, r.Number})
}
