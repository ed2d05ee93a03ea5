package shard

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// databaseCount is the build count of orders of campaigns without a mirror: nothing is minted there.
const databaseCount = 1

// directRun is one attempt at a batch of asks.
type directRun struct {
	batchRun
	asks    []DirectAsk
	results []DirectResult
	open    map[scopeKey]*baseline
}

func (r *directRun) apply(ctx context.Context) error {
	// 1. Lock stock, then the baselines; read everything that judging needs.
	if err := r.lockAndRead(ctx); err != nil {
		return err
	}
	if err := r.lockBaselines(ctx); err != nil {
		return err
	}
	// 2. Replay first, then what needs neither buyer nor stock, then the baseline's rate.
	candidates, err := r.judge()
	if err != nil {
		return err
	}
	candidates = r.meter(candidates)
	// 3. One place per user; deduct for those who fit.
	taken, err := r.takePlaces(ctx, candidates)
	if err != nil {
		return err
	}
	r.deduct(taken)
	if err := r.tx.noteMissing(ctx, r.missing); err != nil {
		return err
	}
	r.conclude(candidates)
	// 4. Write what was ordered, and nothing of the rest.
	if err := r.write(ctx); err != nil {
		return err
	}
	// 5. Read what the others are told.
	return r.readOthers(ctx)
}

// judge gives every message its build and answers all but the candidates.
func (r *directRun) judge() ([]int, error) {
	r.out.Decisions = make([]Decision, len(r.in.Messages))
	var candidates []int
	for i := range r.in.Messages {
		m := &r.in.Messages[i]
		if r.replayed(i) {
			continue
		}
		rules := r.facts.rules[skuKey{m.Campaign, m.SKU}]
		if rules == nil {
			r.results[i].Outcome = DirectUnknown
			continue
		}
		if m.Build = r.buildOf(i, rules); m.Build.IsZero() {
			r.results[i].Outcome = DirectClosed
			continue
		}
		m.Reservation = ids.DeriveReservation(m.Campaign, m.SKU, m.User, m.Request, r.store.cfg.Cell, m.Build)
		m.Price, m.AdmittedAt = rules.Price, r.now
		facts, err := r.facts.of(m, i, r.tx.writer.FenceVersion)
		if err != nil {
			return nil, err
		}
		v := reservation.Judge(&m.Admission, facts)
		if v.Candidate() && r.facts.unreadable(m) {
			r.results[i].Outcome = DirectClosed // until its rules were overwritten (K43)
			continue
		}
		if v.Candidate() {
			candidates = append(candidates, i)
			continue
		}
		r.results[i] = refusedDirect(m, &rules.Rules, v.Reason)
	}
	return candidates, nil
}

// replayed answers a request that the inbox has, under whatever build. An attempt that ended MOVED is
// none: the bucket came back, and this home decides.
func (r *directRun) replayed(i int) bool {
	for _, e := range r.facts.earlier[i] {
		switch {
		case e.Fingerprint != r.in.Messages[i].Fingerprint: // whatever became of it: an id is of one request
			r.results[i].Outcome = DirectConflict
		case e.Rejected && e.Reason == reservation.Moved:
			continue
		default:
			r.results[i].Outcome = DirectReplayed
		}
		return true
	}
	return false
}

// buildOf is the build that an ask is ordered under; zero: the shard alone may not order it.
func (r *directRun) buildOf(i int, rules *batchRules) ids.Build {
	m := &r.in.Messages[i]
	scope := scopeKey{m.Campaign, rules.scopeKey(m.SKU)}
	if r.asks[i].Baseline == 0 && r.facts.minted[scope].IsZero() {
		return ids.Build{Fence: r.tx.writer.FenceVersion, Count: databaseCount}
	}
	open := r.open[scope]
	if open == nil {
		return ids.Build{}
	}
	return open.build
}

// refusedDirect names what the rules have against an ask.
func refusedDirect(m *Message, rules *reservation.Rules, reason reservation.Reason) DirectResult {
	switch reason {
	case reservation.WindowClosed:
		if !rules.Cancelled && m.AdmittedAt.Before(rules.OpenAt) {
			return DirectResult{Outcome: DirectNotStarted, Opens: rules.OpenAt.Sub(m.AdmittedAt)}
		}
		return DirectResult{Outcome: DirectEnded}
	case reservation.Expired:
		return DirectResult{Outcome: DirectPermitExpired}
	case reservation.Moved:
		return DirectResult{Outcome: DirectMoved}
	case reservation.CellFenced, reservation.LostAdmission:
		return DirectResult{Outcome: DirectClosed}
	case reservation.Malformed:
		return DirectResult{Outcome: DirectUnknown}
	default: // a rule that came later than this table
		return DirectResult{Outcome: DirectRefused, Reason: reason}
	}
}

// conclude turns the decisions about candidates into answers.
func (r *directRun) conclude(candidates []int) {
	for _, i := range candidates {
		d, m := &r.out.Decisions[i], &r.in.Messages[i]
		switch {
		case d.Outcome == Ordered:
			r.results[i] = DirectResult{Outcome: DirectOrdered, Row: r.ordered(m, d)}
		case d.winner.reservation != "":
			r.results[i] = DirectResult{Outcome: DirectHeld, Reason: d.Reason, Row: RequestRow{Reservation: d.winner.reservation}}
		case d.Reason == reservation.SoldOut:
			r.results[i] = DirectResult{Outcome: DirectSoldOut, Left: r.facts.available[skuKey{m.Campaign, m.SKU}]}
		default:
			r.results[i] = DirectResult{Outcome: DirectRefused, Reason: d.Reason}
		}
	}
}

// ordered is the row that the request will have when this commits.
func (r *directRun) ordered(m *Message, d *Decision) RequestRow {
	return RequestRow{
		Found: true, MessagesFrom: r.facts.messagesFrom, Campaign: m.Campaign, SKU: m.SKU, User: m.User, Request: m.Request, Quantity: m.Quantity,
		Reservation: m.Reservation, Fingerprint: m.Fingerprint, Outcome: Ordered, Build: m.Build, AdmittedAt: m.AdmittedAt,
		Order: m.Reservation.Order(), OrderState: reservation.PendingPayment, ReservationState: reservation.Reserved, OrderVersion: 1, ExpiresAt: d.ExpiresAt,
	}
}

// write gives up the places of those who did not fit, and keeps what was ordered alone: an ask that was
// refused was not accepted and may be asked again.
func (r *directRun) write(ctx context.Context) error {
	w := &writes{}
	r.queueDrops(w)
	r.queueRates(w)
	all, decisions := r.in.Messages, r.out.Decisions
	r.in.Messages, r.out.Decisions = nil, nil
	for i := range all {
		if decisions[i].Outcome == Ordered {
			r.in.Messages, r.out.Decisions = append(r.in.Messages, all[i]), append(r.out.Decisions, decisions[i])
		}
	}
	if err := r.queueDecisions(w, directTopic); err != nil {
		return err
	}
	r.in.Messages, r.out.Decisions = all, decisions
	if len(w.checks) == 0 {
		return nil
	}
	return r.tx.sendCounted(ctx, &w.batch, w.checks)
}

// readOthers completes the rows of replays and of whoever holds a place.
func (r *directRun) readOthers(ctx context.Context) error {
	b := &pgx.Batch{}
	var reads []func(pgx.Row) error
	for i := range r.results {
		res, m := &r.results[i], &r.in.Messages[i]
		switch res.Outcome {
		case DirectReplayed:
			b.Queue(sql("request_lookup"), m.Campaign, m.SKU, m.User, m.Request)
			res.Row = RequestRow{Campaign: m.Campaign, SKU: m.SKU, User: m.User, Request: m.Request}
			reads = append(reads, res.Row.scan)
		case DirectHeld:
			b.Queue(sql("direct_winner"), res.Row.Reservation)
			res.Row.Campaign, res.Row.User = m.Campaign, m.User
			reads = append(reads, res.Row.scanWinner)
		default: // the others are answered already
		}
	}
	if len(reads) == 0 {
		return nil
	}
	err := r.tx.send(ctx, b, func(res pgx.BatchResults) error {
		for _, read := range reads {
			if err := read(res.QueryRow()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range r.results {
		if r.results[i].Outcome == DirectReplayed {
			if err := r.store.readCarried(ctx, r.tx, &r.results[i].Row); err != nil {
				return err
			}
		}
	}
	return nil
}

// mirrored tells whether the order's campaign has a mirror that must hear of it.
func (r *batchRun) mirrored(m *Message) bool { return !r.facts.minted[r.scopeOf(m)].IsZero() }

func (r *batchRun) scopeOf(m *Message) scopeKey {
	return scopeKey{m.Campaign, r.facts.rules[skuKey{m.Campaign, m.SKU}].scopeKey(m.SKU)}
}

// directEffect takes the units from the mirror, which did not admit them, and shows the order there. A
// mirror that was built from the order has it: its base is not below this version.
func (r *batchRun) directEffect(m *Message, d *Decision) *eventsv1.MirrorEffect {
	k := skuKey{m.Campaign, m.SKU}
	r.facts.versions[k]++
	e := r.settleEffect(m, d)
	e.EffectId, e.Settle = "direct-"+string(m.Reservation), false
	e.StockDelta, e.StockVersion = -m.Quantity, r.facts.versions[k]
	return e
}
