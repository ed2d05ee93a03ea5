package api

import (
	"context"
	"slices"
	"sync"
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
	mirror, direct := lane{door: b.Mirror}, lane{door: b.Direct}
	var told []*pb.Answer // asks that need no door
	rules := b.Rules.Current()
	for _, ask := range asks {
		c, no := b.check(rules, ask)
		if no != nil {
			told = append(told, &pb.Answer{CorrelationId: ask.GetCorrelationId(), Outcome: no.outcome, Detail: no.detail})
			continue
		}
		l := &mirror
		if b.alone(&c) {
			l = &direct
		}
		if outcome := b.sort(rules, c, l); outcome != pb.AdmitOutcome_ADMIT_OUTCOME_UNSPECIFIED {
			told = append(told, &pb.Answer{CorrelationId: ask.GetCorrelationId(), Outcome: outcome})
		}
	}
	b.answer(told...)
	direct.start(func() { b.sellAlone(ctx, &direct) })
	b.precheck(ctx, &mirror)
	b.lookup(ctx, &mirror)
	var waiting []*waiter
	acks := make(chan acknowledgement, len(mirror.admits))
	for part := range slices.Chunk(mirror.admits, b.set.BatchMax) {
		waiting = append(waiting, b.admit(ctx, part, acks)...)
	}
	b.await(waiting, acks, gone)
	direct.running.Wait()
}

// lane is the asks of a message that one door decides about.
type lane struct {
	door      Door
	prechecks []checked
	repeats   []repeat
	admits    []checked
	running   sync.WaitGroup
}

// start runs do beside the other lane, unless there is nothing to do.
func (l *lane) start(do func()) {
	if len(l.prechecks)+len(l.repeats)+len(l.admits) > 0 {
		l.running.Go(do)
	}
}

// repeat is an ask that no first attempt can be: only a request that was made before has an answer.
type repeat struct {
	checked
	against pb.AdmitOutcome // what a first attempt is told
	doubted bool            // this process may not sell: what is not final is the shard's to tell
}

// alone tells whether the shard alone decides about an ask.
func (b *batch) alone(c *checked) bool {
	return c.campaign.Direct || c.campaign.Baseline > 0 && b.Baselines != nil && b.Baselines.Open(scope(c.campaign, c.sku.ID))
}

// sort puts an ask where its answer is found. Replay comes first: what stands against this process or
// the campaign stands against first attempts. It answers an ask that has no place in a lane; 0: it has.
func (b *batch) sort(rules *campaigns.Snapshot, c checked, l *lane) pb.AdmitOutcome {
	doubt, against := b.standing(&c), standsAgainst(rules, c.campaign, c.sku)
	none := pb.AdmitOutcome_ADMIT_OUTCOME_UNSPECIFIED
	switch {
	case c.ask.GetPrecheck() != nil && doubt != none:
		return doubt
	case c.ask.GetPrecheck() != nil:
		l.prechecks = append(l.prechecks, c)
	case doubt != none:
		l.repeats = append(l.repeats, repeat{c, doubt, true})
	case against != none:
		l.repeats = append(l.repeats, repeat{c, against, false})
	default:
		l.admits = append(l.admits, c)
	}
	return none
}

// standing is what a process that may not sell tells first attempts; 0: nothing.
func (b *batch) standing(c *checked) pb.AdmitOutcome {
	switch b.Standing.MaySell(c.campaign.Spec.GetOnLeaseLoss(), b.came) {
	case Sells:
		return pb.AdmitOutcome_ADMIT_OUTCOME_UNSPECIFIED
	case Paused:
		return pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED
	case NotReady:
		return pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY
	default:
		return pb.AdmitOutcome_ADMIT_OUTCOME_FENCED
	}
}

// sellAlone answers asks from the shard alone: an accepted one has its order.
func (b *batch) sellAlone(ctx context.Context, l *lane) {
	b.precheck(ctx, l)
	b.lookup(ctx, l)
	if len(l.admits) == 0 {
		return
	}
	asks := make([]admission.Ask, len(l.admits))
	for i := range l.admits {
		asks[i] = l.admits[i].admit()
		asks[i].Baseline = l.admits[i].campaign.Baseline
	}
	within, cancel := b.lasting(ctx)
	defer cancel()
	answers := make([]*pb.Answer, len(asks))
	for i, r := range l.door.Admit(within, asks) {
		c := &l.admits[i]
		if r.Outcome == admission.Accepted {
			answers[i] = &pb.Answer{CorrelationId: c.ask.GetCorrelationId(), Outcome: outcomes[r.Outcome], Request: b.view(c, r)}
			continue
		}
		answers[i] = b.decided(c, r)
	}
	b.answer(answers...)
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
func (b *batch) lookup(ctx context.Context, l *lane) {
	if len(l.repeats) == 0 {
		return
	}
	asks := make([]admission.LookupAsk, len(l.repeats))
	for i, c := range l.repeats {
		asks[i] = admission.LookupAsk{Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Request: c.request}
	}
	within, cancel := b.lasting(ctx)
	defer cancel()
	answers := make([]*pb.Answer, len(l.repeats))
	for i, r := range l.door.Lookup(within, asks) {
		answers[i] = b.found(within, &l.repeats[i], r)
	}
	b.answer(answers...)
}

// found is the answer to a repeat by what its door has of it.
func (b *batch) found(ctx context.Context, c *repeat, r admission.Result) *pb.Answer {
	if c.doubted && r.Outcome != admission.Clear {
		return b.doubted(ctx, c, r)
	}
	return b.repeated(&c.checked, c.against, r)
}

// doubted is the answer of a process that may not sell to what may be a repeat: a mirror's state that is
// not final is checked against the shard, and what nobody knows is refused as a first attempt is.
func (b *batch) doubted(ctx context.Context, c *repeat, r admission.Result) *pb.Answer {
	if r.Outcome == admission.Replayed && r.State != pb.RequestState_REQUEST_STATE_ADMITTED && r.State != pb.RequestState_REQUEST_STATE_QUEUED {
		return b.repeated(&c.checked, c.against, r)
	}
	view, err := b.Statuses.Get(ctx, query(&c.checked, admission.Result{}))
	if err != nil {
		return &pb.Answer{CorrelationId: c.ask.GetCorrelationId(), Outcome: c.against}
	}
	if q := view.GetQuantity(); q != 0 && q != c.quantity {
		return b.decided(&c.checked, admission.Result{Outcome: admission.Conflict})
	}
	return &pb.Answer{CorrelationId: c.ask.GetCorrelationId(), Outcome: outcomes[admission.Replayed], Request: view}
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
func (b *batch) precheck(ctx context.Context, l *lane) {
	if len(l.prechecks) == 0 {
		return
	}
	asks := make([]admission.PrecheckAsk, len(l.prechecks))
	for i, c := range l.prechecks {
		asks[i] = admission.PrecheckAsk{Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Domain: c.ask.GetDomain()}
	}
	within, cancel := b.lasting(ctx)
	defer cancel()
	answers := make([]*pb.Answer, len(l.prechecks))
	for i, r := range l.door.Precheck(within, asks) {
		answers[i] = b.decided(&l.prechecks[i], finalFirst(l.prechecks[i], r))
	}
	b.answer(answers...)
}

// finalFirst: a permit for a SKU that the control plane declared final is no use to anybody. The mirror
// says so by its gate, the shard alone has none.
func finalFirst(c checked, r admission.Result) admission.Result {
	if r.Outcome == admission.Clear && c.sku.Final {
		return admission.Result{Outcome: admission.FinalSoldOut}
	}
	return r
}

// query names a request for its receipt.
func query(c *checked, r admission.Result) status.Query {
	q := status.Query{Direct: c.campaign.Direct, Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Request: r.Request}
	if q.Request == "" {
		q.Request = c.request
	}
	return q
}

// signs tells whether the reservation was made under this build, so that a receipt of the two fits.
func signs(cell ids.CellID, c *checked, q status.Query, r admission.Result) bool {
	return r.AdmittedAtMS > 0 && r.Reservation == ids.DeriveReservation(c.campaign.ID, q.SKU, c.user, q.Request, cell, r.Build)
}
