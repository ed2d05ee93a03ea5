package api

import (
	"time"

	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// verdicts is the table from what a home cell decided to what its customer is told. Outcomes that
// are missing here are not refusals (accepted, replayed, clear) or not for this edge to understand,
// which is NOT_READY: never "sold out".
var verdicts = map[cq.AdmitOutcome]Code{
	cq.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT: IdempotencyConflict,
	cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED:     AlreadyReserved,
	cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED:    AlreadyPurchased,
	cq.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED:         OrderClosed,
	cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT:        TempSoldOut,
	cq.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT:       FinalSoldOut,
	cq.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL:           QueueFull,
	cq.AdmitOutcome_ADMIT_OUTCOME_THROTTLED:            Throttled,
	cq.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED:          NotStarted,
	cq.AdmitOutcome_ADMIT_OUTCOME_ENDED:                Ended,
	cq.AdmitOutcome_ADMIT_OUTCOME_PAUSED:               Paused,
	cq.AdmitOutcome_ADMIT_OUTCOME_NOT_READY:            NotReady,
	cq.AdmitOutcome_ADMIT_OUTCOME_FENCED:               HomeCellUnavailable,
	cq.AdmitOutcome_ADMIT_OUTCOME_MOVED:                MovedPending,
	cq.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID:       PermitInvalid,
	cq.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT:     InvalidArgument,
	cq.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID:      TooManyUnpaid,
	// The campaign is known here, so a cell that does not know it has not loaded it yet; a 404
	// would tell the customer that it never will.
	cq.AdmitOutcome_ADMIT_OUTCOME_UNKNOWN_CAMPAIGN: NotReady,
}

// refusal is the problem an answer stands for.
func refusal(a *cq.Answer) *problem {
	code, ok := verdicts[a.GetOutcome()]
	if !ok {
		code = NotReady
	}
	p := at(atHome, code)
	if ms := a.GetRetryAfterMs(); ms > 0 {
		p.after(time.Duration(ms) * time.Millisecond)
	}
	switch code {
	case NotStarted:
		if ms := a.GetOpensInMs(); ms > 0 {
			p.after(time.Duration(ms) * time.Millisecond)
		}
	case InvalidArgument:
		p.field("", a.GetDetail())
	case AlreadyReserved, AlreadyPurchased, OrderClosed:
		if own := a.GetRequest(); own.GetRequestId() != "" {
			p.statusURL = statusURL(own.GetCampaignId(), own.GetSkuId(), own.GetRequestId())
		}
	default: // the others have no case of their own: what follows the switch holds
	}
	return p
}
