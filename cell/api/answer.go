package api

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// outcomes is the table from what the mirror decides to what an edge is told. A test walks all of
// admission's.
var outcomes = map[admission.Outcome]pb.AdmitOutcome{
	admission.Accepted:         pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED,
	admission.Replayed:         pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED,
	admission.Conflict:         pb.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT,
	admission.AlreadyReserved:  pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED,
	admission.AlreadyPurchased: pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED,
	admission.OrderClosed:      pb.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED,
	admission.TempSoldOut:      pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT,
	admission.FinalSoldOut:     pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT,
	admission.QueueFull:        pb.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL,
	admission.Throttled:        pb.AdmitOutcome_ADMIT_OUTCOME_THROTTLED,
	admission.NotStarted:       pb.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED,
	admission.Ended:            pb.AdmitOutcome_ADMIT_OUTCOME_ENDED,
	admission.Paused:           pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED,
	admission.NotReady:         pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY,
	admission.Fenced:           pb.AdmitOutcome_ADMIT_OUTCOME_FENCED,
	admission.Moved:            pb.AdmitOutcome_ADMIT_OUTCOME_MOVED,
	admission.PermitInvalid:    pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID,
	admission.Clear:            pb.AdmitOutcome_ADMIT_OUTCOME_CLEAR,
	admission.TooManyUnpaid:    pb.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID,
}

// decided is the answer to an ask that the mirror did not grant.
func (b *batch) decided(c *checked, r admission.Result) *pb.Answer {
	a := &pb.Answer{CorrelationId: c.ask.GetCorrelationId(), StockLeft: r.StockLeft}
	switch r.Outcome {
	case admission.Undecided:
		a.Outcome = pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY
		if errors.Is(r.Err, admission.ErrInvalidAsk) {
			a.Outcome, a.Detail = pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT, r.Err.Error()
		}
		return a
	case admission.Fenced:
		b.Standing.Doubt()
	case admission.NotStarted:
		a.OpensInMs = int32(min(r.OpensInMS, int64(1)<<31-1))
	case admission.Replayed:
		a.Request = b.view(c, r)
	case admission.AlreadyReserved, admission.AlreadyPurchased, admission.OrderClosed:
		a.Request = status.FromMirror(c.campaign.ID, r)
	default: // the others have no case of their own: what follows the switch holds
	}
	if r.Err != nil {
		b.Logger.Debug("the mirror could not decide", slog.String(telemetry.Event, "admission_undecided"), slog.String(telemetry.Error, r.Err.Error()))
	}
	a.Outcome = outcomes[r.Outcome]
	if r.Outcome == admission.NotReady && r.Reason == pb.Reason_REASON_TOO_MANY_UNPAID { // by the shard alone
		a.Outcome = pb.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID
	}
	return a
}

// accepted is the answer to a granted ask; acknowledged: the log has it.
func (b *batch) accepted(c *checked, r admission.Result, acknowledged bool) *pb.Answer {
	r.Request, r.SKU, r.Quantity = c.request, c.sku.ID, c.quantity
	r.State = pb.RequestState_REQUEST_STATE_ADMITTED
	if acknowledged {
		r.State = pb.RequestState_REQUEST_STATE_QUEUED
	}
	return &pb.Answer{
		CorrelationId: c.ask.GetCorrelationId(), Outcome: pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: b.view(c, r),
	}
}

// view is a request of this user with its receipt. A request that an older build admitted keeps the
// receipt of its first answer, which this build cannot sign.
func (b *batch) view(c *checked, r admission.Result) *pb.RequestView {
	v := status.FromMirror(c.campaign.ID, r)
	q := query(c, r)
	if v.RequestId == "" {
		v.RequestId = string(q.Request)
	}
	if v.SkuId == "" {
		v.SkuId = string(c.sku.ID)
	}
	if signs(b.set.Cell, c, q, r) {
		v.Receipt = b.Statuses.Sign(q, r.Build, time.UnixMilli(r.AdmittedAtMS))
	}
	return v
}
