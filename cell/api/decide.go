package api

import (
	"context"
	"slices"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// batch is one message of asks on its way to its answers.
type batch struct {
	*Server
	came time.Time
	// answer hands answers to the stream; it never blocks. Those that are known together are handed over
	// together: one at a time they would leave as one message each.
	answer func(...*pb.Answer)
}

// decide answers every ask of a message. It returns when all answers are handed over, or when gone is
// closed: then what was granted is on its way to the log and nobody is there to be told.
func (b *batch) decide(ctx context.Context, asks []*pb.Ask, gone <-chan struct{}) {
	ctx, span := telemetry.StartBatch(ctx, "admission.batch", len(asks), func(i int) string { return asks[i].GetTraceparent() })
	defer span.End()
	var admits, repeats, prechecks []checked
	var against []pb.AdmitOutcome // of repeats
	var no []*pb.Answer           // to asks that need no mirror
	rules := b.Rules.Current()
	for _, ask := range asks {
		c, refused := b.check(rules, ask)
		if refused == nil {
			refused = b.standing(&c)
		}
		if refused != nil {
			no = append(no, &pb.Answer{CorrelationId: ask.GetCorrelationId(), Outcome: refused.outcome, Detail: refused.detail})
			continue
		}
		switch outcome := standsAgainst(rules, c.campaign, c.sku); {
		case ask.GetPrecheck() != nil:
			prechecks = append(prechecks, c)
		case outcome != pb.AdmitOutcome_ADMIT_OUTCOME_UNSPECIFIED:
			repeats, against = append(repeats, c), append(against, outcome)
		default:
			admits = append(admits, c)
		}
	}
	b.answer(no...)
	b.precheck(ctx, prechecks)
	b.lookup(ctx, repeats, against)
	var waiting []*waiter
	acks := make(chan acknowledgement, len(admits))
	for part := range slices.Chunk(admits, b.set.BatchMax) {
		waiting = append(waiting, b.admit(ctx, part, acks)...)
	}
	b.await(waiting, acks, gone)
}

// standing refuses in the name of a process that may not sell.
func (b *batch) standing(c *checked) *refused {
	switch b.Standing.MaySell(c.campaign.Spec.GetOnLeaseLoss(), b.came) {
	case Sells:
		return nil
	case Paused:
		return &refused{outcome: pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED}
	case NotReady:
		return &refused{outcome: pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY}
	default:
		return &refused{outcome: pb.AdmitOutcome_ADMIT_OUTCOME_FENCED}
	}
}

// lasting is a context that does not end with the stream: what is begun is carried through (K58).
func (b *batch) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.set.Timeout)
}

// admit asks the mirror for units in one pipeline, hands what was granted to the log, and answers all
// others. It returns the acknowledgements to be waited for.
func (b *batch) admit(ctx context.Context, part []checked, acks chan<- acknowledgement) []*waiter {
	asks := make([]admission.Ask, len(part))
	for i := range part {
		asks[i] = part[i].admit()
	}
	within, cancel := b.lasting(ctx)
	defer cancel()
	results := b.Mirror.Admit(within, asks)
	var granted []admission.Granted
	var waiting []*waiter
	var answers []*pb.Answer
	for i, r := range results {
		if r.Outcome != admission.Accepted {
			answers = append(answers, b.decided(&part[i], r))
			continue
		}
		granted = append(granted, *r.Granted)
		if part[i].campaign.Spec.GetAckMode() == pb.AckMode_ACK_MODE_REDIS {
			answers = append(answers, b.accepted(&part[i], r, false))
			continue
		}
		waiting = append(waiting, &waiter{ask: &part[i], result: r, until: b.came.Add(b.patience(part[i].ask))})
	}
	b.produce(granted, waiting, acks)
	b.answer(answers...)
	return waiting
}

// patience is how long an ask waits for the log: less than its asker waits for us.
func (b *batch) patience(ask *pb.Ask) time.Duration {
	if ms := ask.GetWaitMs(); ms > 0 {
		return min(b.set.AckWait, time.Duration(ms)*time.Millisecond*3/4)
	}
	return b.set.AckWait
}

// lookup answers repeats of requests that no longer could be first attempts.
func (b *batch) lookup(ctx context.Context, repeats []checked, against []pb.AdmitOutcome) {
	if len(repeats) == 0 {
		return
	}
	asks := make([]admission.LookupAsk, len(repeats))
	for i, c := range repeats {
		asks[i] = admission.LookupAsk{Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Request: c.request}
	}
	within, cancel := b.lasting(ctx)
	defer cancel()
	answers := make([]*pb.Answer, len(repeats))
	for i, r := range b.Mirror.Lookup(within, asks) {
		answers[i] = b.repeated(&repeats[i], against[i], r)
	}
	b.answer(answers...)
}

// repeated is the answer to a request that was looked up. Where nobody knows whether it is a repeat,
// nothing final is said: its user may hold an order.
func (b *batch) repeated(c *checked, against pb.AdmitOutcome, r admission.Result) *pb.Answer {
	switch {
	case r.Outcome == admission.Replayed && r.Quantity != 0 && r.Quantity != c.quantity:
		return b.decided(c, admission.Result{Outcome: admission.Conflict})
	case r.Outcome == admission.Clear, r.Outcome != admission.Replayed && settled(c.campaign):
		return &pb.Answer{CorrelationId: c.ask.GetCorrelationId(), Outcome: against}
	default:
		return b.decided(c, r)
	}
}

// settled campaigns have no mirror any more, so none that is missing will come: what is left of a
// request there is its order.
func settled(c *campaigns.Campaign) bool {
	return c.State == pb.CampaignState_CAMPAIGN_STATE_SETTLED
}

// precheck answers the permit call's question.
func (b *batch) precheck(ctx context.Context, all []checked) {
	if len(all) == 0 {
		return
	}
	asks := make([]admission.PrecheckAsk, len(all))
	for i, c := range all {
		asks[i] = admission.PrecheckAsk{Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Domain: c.ask.GetDomain()}
	}
	within, cancel := b.lasting(ctx)
	defer cancel()
	answers := make([]*pb.Answer, len(all))
	for i, r := range b.Mirror.Precheck(within, asks) {
		answers[i] = b.decided(&all[i], r)
	}
	b.answer(answers...)
}

// query names a request for its receipt.
func query(c *checked, r admission.Result) status.Query {
	q := status.Query{Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Request: r.Request}
	if q.Request == "" {
		q.Request = c.request
	}
	return q
}

// signs tells whether the reservation was made under this build, so that a receipt of the two fits.
func signs(cell ids.CellID, c *checked, q status.Query, r admission.Result) bool {
	return r.AdmittedAtMS > 0 && r.Reservation == ids.DeriveReservation(c.campaign.ID, q.SKU, c.user, q.Request, cell, r.Build)
}
