package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// Repairs are the shard's verbs that repair; *shard.Store has them. Each adds rows, is idempotent by the
// ids of what it is about, and answers shard.ErrRepair where it does not fit.
type Repairs interface {
	CloseFinding(ctx context.Context, f shard.Finding, n shard.RepairNote, detail string) error
	SentAgain(ctx context.Context, f shard.Finding, n shard.RepairNote, outcome, detail string, again shard.Again) error
	LeaveEffects(ctx context.Context, f shard.Finding, n shard.RepairNote, again shard.Again) error
	TombstoneRequest(ctx context.Context, f shard.Finding, build ids.Build, n shard.RepairNote) (outcome, detail string, err error)
	DropPlace(ctx context.Context, f shard.Finding, n shard.RepairNote) (outcome, detail string, err error)
	ReleaseUnits(ctx context.Context, f shard.Finding, n shard.RepairNote) (outcome, detail string, err error)
	ReverseEntry(ctx context.Context, f shard.Finding, n shard.RepairNote) (outcome, detail string, err error)
	ReleaseReservation(ctx context.Context, ask shard.ReviewAsk) (shard.ReviewEnding, error)
	ReturnAdmission(ctx context.Context, ask shard.ReviewAsk) (shard.ReviewEnding, error)
	OwnFinding(ctx context.Context, id, owner string) error
}

// Ask is one repair that a person wants.
type Ask struct {
	Finding string
	shard.RepairNote
	Owner     string // who looks after it from now on; "": no change
	CheckOnly bool
}

// Answer tells what became of an Ask.
type Answer struct {
	Outcome string // of shard's; "": only checked
	Detail  string
}

// looked is a finding as it is now.
type looked struct {
	shard.Finding
	facts    *facts             // nil: it is about a SKU, or about a place
	gone     bool               // the ledgers agree
	proposes shard.RepairAction // what its judge says now; of what is not judged anew, what was recorded
}

// Repair does what a person asks for. A finding whose ledgers agree by now is closed, whatever was asked.
// shard.ErrRepair: the action does not fit; shard.ErrNotFound: no such finding.
func (l *Loop) Repair(ctx context.Context, a Ask) (Answer, error) {
	f, err := l.shard.Finding(ctx, a.Finding)
	if err != nil {
		return Answer{}, err
	}
	if a.Owner != "" && !a.CheckOnly {
		if err := l.shard.OwnFinding(ctx, f.ID, a.Owner); err != nil {
			return Answer{}, err
		}
	}
	if a.Action == "" {
		return Answer{shard.RepairDone, "the finding is " + a.Owner + "'s"}, nil
	}
	if f.State == shard.FindingRepaired {
		return Answer{shard.RepairAlready, "it was repaired before"}, nil
	}
	now, err := l.lookAt(ctx, []shard.Finding{f})
	if err != nil {
		return Answer{}, err
	}
	switch one := now[0]; {
	case one.gone && a.CheckOnly:
		return Answer{"", "the ledgers agree by now; it would be closed"}, nil
	case one.gone:
		return Answer{shard.RepairClosed, "the ledgers agree by now"}, l.shard.CloseFinding(ctx, f, a.RepairNote, "the ledgers agree")
	case a.CheckOnly:
		return Answer{"", fmt.Sprintf("%s %s (%s), %d units: %s", a.Action, one.Kind, one.State, one.Units, one.Detail)}, nil
	default:
		out, err := l.repair(ctx, one, a.RepairNote, shard.Again{Pause: l.cfg.Confirm, Person: true})
		l.metrics.repaired(a.Action, out.Outcome, err)
		return out, err
	}
}

// repair does one action about a difference that is there.
func (l *Loop) repair(ctx context.Context, f looked, n shard.RepairNote, again shard.Again) (out Answer, err error) {
	switch n.Action {
	case shard.ActRepublish:
		return l.republish(ctx, f, n, again)
	case shard.ActReturn:
		if f.facts != nil && f.facts.inbox != nil && f.facts.inbox.Outcome == shard.Parked {
			_, err := l.shard.ReturnAdmission(ctx, review(f.Finding, n))
			return l.ended(ctx, f.Finding, n, err)
		}
		return Answer{shard.RepairDone, "the effects of its outcome were sent again"}, l.shard.LeaveEffects(ctx, f.Finding, n, again)
	case shard.ActTombstone:
		if f.facts == nil || f.facts.mirror == nil || f.Kind != shard.TakenWithoutEvent && f.Kind != shard.EventWithoutReservation {
			return Answer{}, fmt.Errorf("%w: tombstone is for an admission of the present mirror without an outcome", shard.ErrRepair)
		}
		out.Outcome, out.Detail, err = l.shard.TombstoneRequest(ctx, f.Finding, f.facts.mirror.build, n)
	case shard.ActReverse:
		if f.proposes != shard.ActReverse { // a finding names an entry also where it is the reservation's own
			return Answer{}, fmt.Errorf("%w: nothing of finding %s is one too many", shard.ErrRepair, f.ID)
		}
		out.Outcome, out.Detail, err = l.shard.ReverseEntry(ctx, f.Finding, n)
	case shard.ActRelease:
		return l.release(ctx, f, n)
	default:
		return Answer{}, fmt.Errorf("%w: no such action %q", shard.ErrRepair, n.Action)
	}
	return out, err
}

func (l *Loop) release(ctx context.Context, f looked, n shard.RepairNote) (out Answer, err error) {
	switch {
	case f.Kind == shard.OrphanBuyerMark:
		out.Outcome, out.Detail, err = l.shard.DropPlace(ctx, f.Finding, n)
	case f.facts != nil && f.facts.hold != nil && f.facts.hold.State == reservation.ManualReview:
		_, err := l.shard.ReleaseReservation(ctx, review(f.Finding, n))
		return l.ended(ctx, f.Finding, n, err)
	case f.proposes == shard.ActRelease && (f.Kind == shard.ReservationWithoutOrder || f.Kind == shard.MissingAction):
		out.Outcome, out.Detail, err = l.shard.ReleaseUnits(ctx, f.Finding, n)
	default:
		err = fmt.Errorf("%w: release does not fit %s", shard.ErrRepair, f.Kind)
	}
	return out, err
}

// review ends a MANUAL_REVIEW under the finding's id.
func review(f shard.Finding, n shard.RepairNote) shard.ReviewAsk {
	return shard.ReviewAsk{Reservation: f.Reservation, Operation: f.ID, Actor: n.Actor, Reason: n.Reason, Incident: n.Incident}
}

func (l *Loop) ended(ctx context.Context, f shard.Finding, n shard.RepairNote, err error) (Answer, error) {
	switch {
	case errors.Is(err, reservation.ErrNotInReview), errors.Is(err, shard.ErrInvalid):
		return Answer{}, fmt.Errorf("%w: %w", shard.ErrRepair, err)
	case err != nil:
		return Answer{}, err
	}
	return Answer{shard.RepairDone, "the review is ended"}, l.shard.CloseFinding(ctx, f, n, "the review is ended")
}

// republish sends the message once more under its own event id, or the effects of its outcome.
func (l *Loop) republish(ctx context.Context, f looked, n shard.RepairNote, again shard.Again) (Answer, error) {
	if f.facts == nil {
		return Answer{}, fmt.Errorf("%w: nothing of finding %s can be sent again", shard.ErrRepair, f.ID)
	}
	if _, known, _ := f.facts.outcome(); known {
		return Answer{shard.RepairDone, "the effects of its outcome were sent again"}, l.shard.LeaveEffects(ctx, f.Finding, n, again)
	}
	if m := f.facts.mirror; m == nil || m.trail == nil || len(m.trail.Message) == 0 {
		return Answer{}, fmt.Errorf("%w: the message of event %s is lost", shard.ErrRepair, f.Event)
	}
	sent := make(chan error, 1)
	l.sender.Produce([]admission.Granted{f.facts.mirror.trail.Granted}, func(_ admission.Granted, err error) { sent <- err })
	select {
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	case err := <-sent:
		if err != nil {
			return Answer{shard.RepairFailed, err.Error()}, l.shard.SentAgain(ctx, f.Finding, n, shard.RepairFailed, err.Error(), again)
		}
	}
	detail := "event " + f.Event + " was sent again"
	return Answer{shard.RepairDone, detail}, l.shard.SentAgain(ctx, f.Finding, n, shard.RepairDone, detail, again)
}

// lookAt reads what findings are about, as it is now. One of a SKU is gone when the last comparison of
// everything did not meet it.
func (l *Loop) lookAt(ctx context.Context, list []shard.Finding) ([]looked, error) {
	var ask []candidate
	var places []shard.BuyerFact
	for _, f := range list {
		switch {
		case l.isPlace(f):
			places = append(places, shard.BuyerFact{Campaign: f.Campaign, ScopeKey: scopeKey(f), User: f.User})
		case f.Reservation != "":
			ask = append(ask, candidate{f.Reservation, f.Campaign, f.SKU, f.User, f.Request})
		}
	}
	all, err := l.see(ctx, ask)
	if err != nil {
		return nil, err
	}
	held, err := l.shard.Places(ctx, places)
	if err != nil {
		return nil, err
	}
	out := make([]looked, len(list))
	for i, f := range list {
		out[i] = looked{Finding: f, gone: f.Gone, proposes: f.Action}
		switch {
		case l.isPlace(f):
			out[i].gone = !slices.ContainsFunc(held, func(b shard.BuyerFact) bool { return b.User == f.User && b.Campaign == f.Campaign && b.Orphan })
		case f.Reservation != "":
			out[i].gone, out[i].proposes = true, ""
			for _, one := range all {
				if one.id == f.Reservation {
					out[i].now(one, judge(one, l.bounds))
					if one.mirror == nil && ofMirror(f) && l.mirrored(f) {
						out[i].gone = false // it did not answer: unknown is not gone
					}
				}
			}
		}
	}
	return out, nil
}

// now compares a finding with what is judged of its reservation.
func (f *looked) now(one *facts, found []shard.Finding) {
	f.facts = one
	for _, g := range found {
		if g.ID == f.ID {
			f.gone, f.Units, f.Entry, f.proposes = false, g.Units, g.Entry, g.Action
		}
	}
}

// ofMirror: only its mirror can say that such a finding is gone.
func ofMirror(f shard.Finding) bool {
	switch f.Kind {
	case shard.ClosedWithoutReturn, shard.TakenWithoutEvent, shard.OrphanBuyerMark:
		return true
	default:
		return f.Action == shard.ActRepublish || f.Action == shard.ActTombstone
	}
}

func (l *Loop) mirrored(f shard.Finding) bool {
	return slices.ContainsFunc(l.scopes(), func(p Place) bool { return p.Scope.Campaign == f.Campaign && p.SKU == f.SKU })
}

// isPlace: it is about a row of buyers, not about a mark.
func (l *Loop) isPlace(f shard.Finding) bool {
	return f.Kind == shard.OrphanBuyerMark && f.ID == findingID(l.cell, f.Kind, "place", string(f.Campaign), scopeKey(f), string(f.User))
}

func scopeKey(f shard.Finding) string {
	if f.SKU == "" {
		return admission.AnySKU
	}
	return string(f.SKU)
}

// openAtOnce bounds the open findings that one cycle looks at again.
const openAtOnce = 200

// lookAfter closes findings whose ledgers agree again, and repairs what the cell may repair by itself:
// what was not sent and what was not given back. A SKU that a finding of a quantity holds is left alone.
func (l *Loop) lookAfter(ctx context.Context) error {
	open, err := l.shard.OpenFindings(ctx, openAtOnce)
	if err != nil {
		return err
	}
	now, err := l.lookAt(ctx, open)
	if err != nil {
		return err
	}
	var still []string
	for _, f := range now {
		switch {
		case f.gone && (f.State != shard.FindingReview || f.Kind == shard.Overdue):
			if err := l.shard.CloseFinding(ctx, f.Finding, shard.RepairNote{Action: f.Action, Actor: "cell"}, "the ledgers agree again"); err != nil {
				return err
			}
		case f.State == shard.FindingOpen && f.Due && (f.Action == shard.ActRepublish || f.Action == shard.ActReturn):
			if err := l.byItself(ctx, f); err != nil {
				return err
			}
		default:
			still = append(still, f.ID)
		}
	}
	if len(still) > 0 && len(open) == openAtOnce { // so that others come first next time
		if err := l.shard.LookedFindings(ctx, still); err != nil {
			return err
		}
	}
	counts, err := l.shard.FindingCounts(ctx)
	if err != nil {
		return err
	}
	l.metrics.counts(counts)
	return nil
}

// byItself is one automatic repair within the budget.
func (l *Loop) byItself(ctx context.Context, f looked) error {
	if holds, err := l.shard.FrozenBy(ctx, f.Campaign, f.SKU); err != nil || holds != "" {
		return err
	}
	again := shard.Again{
		Pause:     min(l.cfg.Confirm<<min(f.Tries, 5), 10*time.Second),
		Exhausted: f.Tries+1 >= l.cfg.RepairTries || f.Trying >= l.cfg.RepairFor,
	}
	out, err := l.repair(ctx, f, shard.RepairNote{Action: f.Action, Actor: "cell"}, again)
	l.metrics.repaired(f.Action, out.Outcome, err)
	if errors.Is(err, shard.ErrRepair) {
		return l.shard.SentAgain(ctx, f.Finding, shard.RepairNote{Action: f.Action, Actor: "cell"}, shard.RepairFailed, err.Error(), again)
	}
	return err
}
