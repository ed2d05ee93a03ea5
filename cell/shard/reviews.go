package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// reviewsStep is the schema's step that knows how a MANUAL_REVIEW ended.
const reviewsStep = 5

// ReviewAsk ends one MANUAL_REVIEW by a person's word.
type ReviewAsk struct {
	Reservation ids.ReservationID
	// Operation is minted by whoever asks, before the first try: the same id again is answered the same.
	Operation string
	// Actor, Reason and Incident are kept with the ending; none may be empty.
	Actor, Reason, Incident string
	// For is why a returned admission is rejected; MALFORMED when empty. A release is always EXPIRED.
	For reservation.Reason
	// CheckOnly decides and writes nothing.
	CheckOnly bool
	// Traceparent is the W3C context of the call, or "".
	Traceparent string
}

// ReviewAction is how a review is ended.
type ReviewAction string

// The actions.
const (
	Release   ReviewAction = "RELEASE" // an unpaid order is closed, its units are for sale again
	ReturnOne ReviewAction = "RETURN"  // a parked message is rejected, its units go back to its mirror
)

// ReviewEnding is how a review ended.
type ReviewEnding struct {
	Operation   string
	Action      ReviewAction
	Reservation ids.ReservationID
	Units       int32
	// As is CLOSED for a release (the order), REJECTED for a return (the request); For is the reason its
	// user sees.
	As                      string
	For                     reservation.Reason
	Reason, Actor, Incident string
	At                      time.Time // zero: only checked
	// Repeat: it had ended before, under the same operation.
	Repeat bool
	// Order is a release's, as it is now.
	Order Order
	// Request is what a return rejected; empty with a release, or a repeat.
	Request ids.RequestID
}

// NotInReview is ErrNotInReview with what the thing is instead.
type NotInReview struct {
	Reservation ids.ReservationID
	// Is is the reservation's state or, without one, the message's outcome; For is its reason.
	Is  string
	For reservation.Reason
	// Operation and Actor are set when a person ended it.
	Operation, Actor string
}

// Error says what it ended as, and by whom.
func (e *NotInReview) Error() string {
	text := fmt.Sprintf("%v: %s is %s", reservation.ErrNotInReview, e.Reservation, e.Is)
	if e.For != reservation.NoReason {
		text += " (" + string(e.For) + ")"
	}
	if e.Operation != "" {
		text += fmt.Sprintf(", ended by %s under operation %s", e.Actor, e.Operation)
	}
	return text
}

// Unwrap makes errors.Is(err, reservation.ErrNotInReview) hold.
func (e *NotInReview) Unwrap() error { return reservation.ErrNotInReview }

// ErrOperationUsed: the operation_id ended another review, or this one with other words.
var ErrOperationUsed = fmt.Errorf("%w: operation_id was used for something else", ErrConflict)

// maxReviewText bounds each word of an ask, in bytes.
const maxReviewText = 512

// returnFor are the reasons that a returned admission may be rejected for.
var returnFor = map[reservation.Reason]bool{
	reservation.Malformed: true, reservation.SoldOut: true, reservation.WindowClosed: true, reservation.LostAdmission: true,
}

func (a *ReviewAsk) check(action ReviewAction) error {
	for _, f := range []struct{ name, text string }{{"operation_id", a.Operation}, {"actor", a.Actor}, {"reason", a.Reason}, {"incident", a.Incident}} {
		if strings.TrimSpace(f.text) == "" || len(f.text) > maxReviewText {
			return fmt.Errorf("%w: %s must have 1 to %d bytes", ErrInvalid, f.name, maxReviewText)
		}
	}
	if action == Release {
		a.For = reservation.Expired
		return nil
	}
	if a.For == reservation.NoReason {
		a.For = reservation.Malformed
	}
	if !returnFor[a.For] {
		return fmt.Errorf("%w: a returned admission is rejected as MALFORMED, SOLD_OUT, WINDOW_CLOSED or LOST_ADMISSION, not %s", ErrInvalid, a.For)
	}
	return nil
}

// ReleaseReservation ends the review of an order whose payment channel stayed silent: the order is CLOSED,
// its units are available again and, through the outbox, the mirror's. Money that comes later is refunded
// (PAID_AFTER_CLOSE). Errors: *NotInReview (ErrNotInReview), ErrNotFound, ErrOperationUsed, ErrInvalid,
// ErrUnsupported (schema below step 5); and those of every verb.
func (s *Store) ReleaseReservation(ctx context.Context, ask ReviewAsk) (ReviewEnding, error) {
	var run *stepRun
	out, err := s.endReview(ctx, Release, ask, func(ctx context.Context, t tx, ask *ReviewAsk) (ReviewEnding, error) {
		run = newStepRun(s, t, 0)
		run.source, run.actor = "review", ask.Actor
		return run.release(ctx, ask)
	})
	if err == nil && !out.Repeat && !ask.CheckOnly {
		s.metrics.settled(run)
	}
	return out, err
}

// ReturnAdmission ends the review of a parked message: its request reads REJECTED, the mirror of its build
// gets exactly its units back, once, and its user may try again under another request id. The same message,
// consumed again, is a duplicate of its row. Errors as those of ReleaseReservation; a message that left no
// row is ErrNotFound: nothing is known that could be given back.
func (s *Store) ReturnAdmission(ctx context.Context, ask ReviewAsk) (ReviewEnding, error) {
	return s.endReview(ctx, ReturnOne, ask, func(ctx context.Context, t tx, ask *ReviewAsk) (ReviewEnding, error) {
		return t.returnAdmission(ctx, ask)
	})
}

// endReview runs one ending in the transaction of every verb; what became of an unknown commit is found by
// the operation.
func (s *Store) endReview(ctx context.Context, action ReviewAction, ask ReviewAsk,
	end func(context.Context, tx, *ReviewAsk) (ReviewEnding, error),
) (ReviewEnding, error) {
	if err := ask.check(action); err != nil {
		return ReviewEnding{}, err
	}
	if err := s.mayEndReviews(ctx); err != nil {
		return ReviewEnding{}, err
	}
	var out ReviewEnding
	err := s.resolved(ctx, func() error {
		return s.inTx(ctx, strings.ToLower(string(action))+"_review", needSettle, func(ctx context.Context, t tx) error {
			var err error
			out, err = end(ctx, t, &ask)
			return err
		})
	})
	if err != nil {
		return ReviewEnding{}, err
	}
	if !ask.CheckOnly && !out.Repeat {
		s.log.InfoContext(ctx, "review ended", telemetry.Event, "review_ended", "action", string(action), telemetry.ReservationID, ask.Reservation,
			telemetry.NewState, out.As, "units", out.Units, "actor", ask.Actor, "incident", ask.Incident, "operation_id", ask.Operation)
	}
	return out, nil
}

// mayEndReviews is ErrUnsupported while the schema is at a step that keeps no endings.
func (s *Store) mayEndReviews(ctx context.Context) error {
	known, err := s.hasReviews(ctx, s.pool)
	if err != nil {
		return translate(err)
	}
	if !known {
		return fmt.Errorf("%w: ending a review needs step %d of the shard's schema: run cellquotad migrate up", ErrUnsupported, reviewsStep)
	}
	return nil
}

// release closes the order of a reservation in review. Its row is locked before anything is looked up.
func (r *stepRun) release(ctx context.Context, ask *ReviewAsk) (ReviewEnding, error) {
	id := ask.Reservation.Order()
	if err := r.lock(ctx, []Step{{Order: id, Traceparent: ask.Traceparent}}); err != nil {
		return ReviewEnding{}, err
	}
	o := r.orders[id]
	ended, err := r.tx.reviewEnded(ctx, Release, ask)
	if err != nil || ended != nil {
		if ended != nil && o != nil {
			ended.Order = o.Order
		}
		return orEmpty(ended), err
	}
	if o == nil {
		return ReviewEnding{}, fmt.Errorf("%w: no reservation %s", ErrNotFound, ask.Reservation)
	}
	was := o.Order
	res, err := r.advance(o, reservation.End, reservation.Expired)
	if err != nil {
		return ReviewEnding{}, err
	}
	if res.Err != nil {
		return ReviewEnding{}, &NotInReview{Reservation: ask.Reservation, Is: string(was.ReservationState), For: was.Reason}
	}
	out := ask.ending(Release, o.Quantity)
	if ask.CheckOnly {
		out.Order = was
		return out, nil
	}
	if out.At, err = r.tx.recordEnding(ctx, out, endedFacts{campaign: o.Campaign, sku: o.SKU}); err != nil {
		return ReviewEnding{}, err
	}
	out.Order = o.Order
	return out, r.write(ctx)
}

// ending is what the ask would lead to.
func (a *ReviewAsk) ending(action ReviewAction, units int32) ReviewEnding {
	out := ReviewEnding{
		Operation: a.Operation, Action: action, Reservation: a.Reservation, Units: units, As: "CLOSED", For: a.For,
		Reason: a.Reason, Actor: a.Actor, Incident: a.Incident,
	}
	if action == ReturnOne {
		out.As = string(Rejected)
	}
	return out
}

func orEmpty(e *ReviewEnding) ReviewEnding {
	if e == nil {
		return ReviewEnding{}
	}
	return *e
}

// reviewEnded looks for an earlier ending under the operation's id, which is the answer when it is the same
// in every word, or of the reservation, which is a refusal. nil: there is none.
func (t tx) reviewEnded(ctx context.Context, action ReviewAction, ask *ReviewAsk) (*ReviewEnding, error) {
	rows, err := t.Query(ctx, sql("review_ended"), ask.Operation, ask.Reservation)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ReviewEnding, error) {
		var e ReviewEnding
		err := row.Scan(&e.Operation, &e.Action, &e.Reservation, &e.Units, &e.As, &e.For, &e.Reason, &e.Actor, &e.Incident, &e.At)
		return e, err
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	for _, e := range found {
		if e.Operation != ask.Operation {
			continue
		}
		if want := ask.ending(action, e.Units); want != (ReviewEnding{
			Operation: e.Operation, Action: e.Action, Reservation: e.Reservation, Units: e.Units, As: e.As, For: e.For, Reason: e.Reason, Actor: e.Actor,
			Incident: e.Incident,
		}) {
			return nil, fmt.Errorf("%w: it is the %s of %s for %q by %s, incident %s", ErrOperationUsed, e.Action, e.Reservation, e.Reason, e.Actor, e.Incident)
		}
		e.Repeat = true
		return &e, nil
	}
	e := found[0]
	return nil, &NotInReview{Reservation: e.Reservation, Is: e.As, For: e.For, Operation: e.Operation, Actor: e.Actor}
}

// endedFacts complete the row of an ending.
type endedFacts struct {
	campaign ids.CampaignID
	sku      ids.SKUID
	since    *time.Time // nil: of the reservation
	parked   parkedValue
}

// recordEnding writes the ending. The thing itself is locked, so only an operation about another one can
// have taken the id meanwhile.
func (t tx) recordEnding(ctx context.Context, e ReviewEnding, f endedFacts) (at time.Time, err error) {
	err = t.QueryRow(ctx, sql("review_end"), e.Operation, string(e.Action), e.Reservation, f.campaign, f.sku, e.Units, e.As, string(e.For), e.Reason,
		e.Actor, e.Incident, f.since, t.writer.FenceVersion, f.parked.topicID, f.parked.class, f.parked.value).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return at, ErrOperationUsed
	}
	return at, err
}
