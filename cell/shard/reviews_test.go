package shard_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func review(res ids.ReservationID, operation string) shard.ReviewAsk {
	return shard.ReviewAsk{Reservation: res, Operation: operation, Actor: "sre@example", Reason: "the channel never answered", Incident: "INC-7"}
}

// inReview makes an order whose payment channel stayed silent.
func (b *bench) inReview(user string) ids.OrderID {
	b.t.Helper()
	o := b.order(user)
	b.step(shard.Step{Kind: shard.StepStart, Order: o, User: ids.UserID(user), Payment: "p"})
	if r := b.step(shard.Step{Kind: shard.StepSilent, Order: o, Payment: "p"}); r.Order.ReservationState != reservation.ManualReview {
		b.t.Fatalf("review: %+v", r)
	}
	return o
}

// parked makes a message that was parked.
func (b *bench) parked(user string, change ...func(*shard.Message)) shard.Message {
	b.t.Helper()
	m := b.message(user, append([]func(*shard.Message){func(m *shard.Message) { m.DeviceID = "d-" + user }}, change...)...)
	value, err := proto.Marshal(&eventsv1.Admission{ReservationId: string(m.Reservation), DeviceId: m.DeviceID})
	b.must(err)
	b.must(b.store.ApplyParking(b.ctx, b.batch(m).From, m.Offset+1, 0, shard.Parking{Offset: m.Offset, ErrorClass: "22", Value: value, Message: &m}))
	return m
}

// queue counts what waits for a person, as the reader sees it.
func (b *bench) queue(cause string) int {
	b.t.Helper()
	return one[int](b, "SELECT count(*) FROM cellquota.v_reviews WHERE cause = $1 AND age_seconds >= 0", cause)
}

// notInReview checks a refusal: what the thing is, and the operation that ended it.
func (b *bench) notInReview(err error, is, operation string) {
	b.t.Helper()
	var not *shard.NotInReview
	if !errors.As(err, &not) || !errors.Is(err, reservation.ErrNotInReview) || not.Is != is || not.Operation != operation {
		b.t.Errorf("%v, want %s by %q", err, is, operation)
	}
}

// TestReleaseEndsASilentReview: closed once, whoever asks how often; the unit is for sale again; money that
// comes later goes back once.
func TestReleaseEndsASilentReview(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	o := b.inReview("u")
	res := o.Reservation()
	if b.queue("SILENT_PAYMENT") != 1 {
		t.Fatal("not in the queue")
	}
	before := b.fingerprint()
	check := review(res, "op-1")
	check.CheckOnly = true
	if e, err := b.store.ReleaseReservation(b.ctx, check); err != nil || e.Units != 1 || !e.At.IsZero() || b.fingerprint() != before {
		t.Fatalf("a check: %+v, %v", e, err)
	}
	for i := range 3 {
		e, err := b.store.ReleaseReservation(b.ctx, review(res, "op-1"))
		if err != nil || e.Repeat != (i > 0) || e.As != "CLOSED" || e.For != reservation.Expired || e.Units != 1 || e.At.IsZero() || e.Order.State != reservation.OrderClosed {
			t.Fatalf("release %d: %+v, %v", i, e, err)
		}
	}
	other := review(res, "op-1")
	other.Incident = "INC-8"
	if _, err := b.store.ReleaseReservation(b.ctx, other); !errors.Is(err, shard.ErrOperationUsed) {
		t.Errorf("other words: %v", err)
	}
	if _, err := b.store.ReturnAdmission(b.ctx, review(res, "op-1")); !errors.Is(err, shard.ErrOperationUsed) {
		t.Errorf("another action: %v", err)
	}
	_, err := b.store.ReleaseReservation(b.ctx, review(res, "op-2"))
	b.notInReview(err, "CLOSED", "op-1")
	if n := one[int](b, `SELECT count(*) FROM cellquota.ledger WHERE action = 'RELEASE' AND source = 'review' AND actor = 'sre@example' AND business_no = $1`, res); n != 1 {
		t.Errorf("%d entries", n)
	}
	e := b.effects()["release-"+string(res)]
	if e.GetStockDelta() != 1 || e.GetState() != cellquotav1.RequestState_REQUEST_STATE_CLOSED || e.GetStockVersion() != b.stock(phone).Version {
		t.Errorf("effect %v", e)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'order-closed'"); n != 1 || b.queue("SILENT_PAYMENT") != 0 {
		t.Errorf("%d events, %d in the queue", n, b.queue("SILENT_PAYMENT"))
	}
	b.order("next")
	for i := range 3 {
		r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: price, FromChannel: true})
		if r.Err != nil || r.Order.State != reservation.OrderClosed || r.Payment != shard.PaymentPaidAfterClose || (r.Refund != "") != (i == 0) {
			t.Fatalf("late payment %d: %+v", i, r)
		}
	}
	if n, _ := b.settles(); n != 1 {
		t.Errorf("settled %d times", n)
	}
	b.invariants()
}

// TestReleaseIsRefusedOutsideOfReview: whatever it is instead is named, and nothing changes.
func TestReleaseIsRefusedOutsideOfReview(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	open, paid, closed, parked := b.order("open"), b.paid("paid"), b.order("closed"), b.parked("parked")
	b.step(shard.Step{Kind: shard.StepCancel, Order: closed, User: "closed"})
	before := b.fingerprint()
	for o, is := range map[ids.OrderID]string{open: "RESERVED", paid: "CONFIRMED", closed: "RELEASED"} {
		_, err := b.store.ReleaseReservation(b.ctx, review(o.Reservation(), "op-"+is))
		b.notInReview(err, is, "")
		_, err = b.store.ReturnAdmission(b.ctx, review(o.Reservation(), "op-"+is))
		b.notInReview(err, is, "")
	}
	nobody := b.message("nobody").Reservation
	if _, err := b.store.ReleaseReservation(b.ctx, review(parked.Reservation, "op")); !errors.Is(err, shard.ErrNotFound) {
		t.Errorf("a release of a parked message: %v", err)
	}
	if _, err := b.store.ReturnAdmission(b.ctx, review(nobody, "op")); !errors.Is(err, shard.ErrNotFound) {
		t.Errorf("a return without a row: %v", err)
	}
	for name, spoil := range map[string]func(*shard.ReviewAsk){
		"operation_id": func(a *shard.ReviewAsk) { a.Operation = "" }, "actor": func(a *shard.ReviewAsk) { a.Actor = " " },
		"reason": func(a *shard.ReviewAsk) { a.Reason = "" }, "incident": func(a *shard.ReviewAsk) { a.Incident = strings.Repeat("x", 600) },
		"MALFORMED": func(a *shard.ReviewAsk) { a.For = reservation.Expired },
	} {
		ask := review(parked.Reservation, "op")
		spoil(&ask)
		if _, err := b.store.ReturnAdmission(b.ctx, ask); !errors.Is(err, shard.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if b.fingerprint() != before || one[int](b, "SELECT count(*) FROM cellquota.review_endings") != 0 {
		t.Error("a refusal changed the shard")
	}
}

// TestReturnGivesAParkedAdmissionBack: exactly once, by reservation id, to its own build; the request reads
// REJECTED for ever; its user is free to try again; the message, consumed again, changes nothing.
func TestReturnGivesAParkedAdmissionBack(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	m := b.parked("u", func(m *shard.Message) { m.Quantity = 3 })
	unread := b.message("x")
	b.must(b.store.ApplyParking(b.ctx, b.batch(unread).From, unread.Offset+1, 0, shard.Parking{Offset: unread.Offset, ErrorClass: "DECODE", Value: []byte{7}}))
	if b.queue("PARKED_MESSAGE") != 1 || b.queue("UNREAD_MESSAGE") != 1 {
		t.Fatal("not in the queue")
	}
	before := b.fingerprint()
	check := review(m.Reservation, "op-1")
	check.CheckOnly = true
	if e, err := b.store.ReturnAdmission(b.ctx, check); err != nil || e.Units != 3 || !e.At.IsZero() || b.fingerprint() != before {
		t.Fatalf("a check: %+v, %v", e, err)
	}
	for i := range 3 {
		e, err := b.store.ReturnAdmission(b.ctx, review(m.Reservation, "op-1"))
		if err != nil || e.Repeat != (i > 0) || e.As != "REJECTED" || e.For != reservation.Malformed || e.Units != 3 || e.At.IsZero() {
			t.Fatalf("return %d: %+v, %v", i, e, err)
		}
	}
	_, err := b.store.ReturnAdmission(b.ctx, review(m.Reservation, "op-2"))
	b.notInReview(err, "REJECTED", "op-1")
	e := b.effects()["return-"+string(m.Reservation)]
	if e.GetStockDelta() != 3 || e.GetAdmissionBuild().GetCount() != m.Build.Count || e.GetMark() != eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE ||
		e.GetState() != cellquotav1.RequestState_REQUEST_STATE_REJECTED || e.GetReason() != cellquotav1.Reason_REASON_MALFORMED || e.GetAggregateVersion() != 2 ||
		!e.GetUnpaidHold() || e.GetDeviceId() != "d-u" {
		t.Errorf("effect %v", e)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'return'"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if got := one[string](b, "SELECT error_class || ' ' || topic_id || ' ' || (value IS NOT NULL) FROM cellquota.v_review_endings"); got != "22 "+topicID+" true" {
		t.Errorf("kept of what was parked: %s", got)
	}
	if b.queue("PARKED_MESSAGE") != 0 || b.queue("UNREAD_MESSAGE") != 1 || one[int](b, "SELECT count(*) FROM cellquota.parked") != 1 {
		t.Error("what was returned is still parked, or what was not is gone")
	}
	if s := b.stock(phone); s.Available != 5 || s.Version != 1 {
		t.Errorf("the shard's stock was touched: %+v", s)
	}
	row, err := b.store.LookupRequest(b.ctx, campaign, phone, "u", m.Request)
	if err != nil || row.Outcome != shard.Rejected || row.Reason != reservation.Malformed {
		t.Errorf("%+v, %v", row, err)
	}
	again := m
	again.Offset = b.next
	b.next++
	if d := b.apply(again); !d[0].Duplicate {
		t.Errorf("the late message: %+v", d[0])
	}
	b.order("u", func(m *shard.Message) { m.Request = "another" })
	b.invariants()
}

// TestReturnFreesThePlace: a message that was replayed on a shard that went back in time was parked with its
// place; the same request of a later build stays rejected.
func TestReturnFreesThePlace(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	m, other := b.parked("u"), b.parked("v")
	for _, p := range []shard.Message{m, other} {
		b.exec(b.admin, "INSERT INTO cellquota.buyers VALUES ($1, $2, $3, 'OWN', $4, cellquota.now())", campaign, phone, p.User, p.Reservation)
	}
	ask := review(m.Reservation, "op")
	ask.For = reservation.SoldOut
	if _, err := b.store.ReturnAdmission(b.ctx, ask); err != nil {
		t.Fatal(err)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.buyers WHERE user_id = 'v'"); n != 1 || one[int](b, "SELECT count(*) FROM cellquota.buyers") != 1 {
		t.Error("the wrong place was freed, or none")
	}
	b.raiseNext(string(phone))
	if d := b.apply(b.message("u")); d[0].Outcome != shard.Rejected || d[0].Reason != reservation.SoldOut {
		t.Errorf("a rejection with a row is final for its request id: %+v", d[0])
	}
	b.order("u", func(m *shard.Message) { m.Request = "another" })
}

// TestReviewsEndUnderAFenceThatSettles: also after a restore, never for a fenced writer (I8).
func TestReviewsEndUnderAFenceThatSettles(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	o, m := b.inReview("u"), b.parked("p")
	last := b.inReview("last")
	conn := b.fencer()
	_, err := b.fence(conn, 2, time.Second)
	b.must(err)
	if _, err := b.store.ReleaseReservation(b.ctx, review(o.Reservation(), "op-1")); !errors.Is(err, shard.ErrFenced) {
		t.Fatalf("on a fenced shard: %v", err)
	}
	b.exec(conn, "SELECT cellquota.restore_cell($1, 3, $2, 'test', 1000)", string(cellID), group)
	b.store.SetWriter(shard.Writer{FenceVersion: 3, Group: group})
	if _, err := b.store.ReleaseReservation(b.ctx, review(o.Reservation(), "op-1")); err != nil {
		t.Error(err)
	}
	if _, err := b.store.ReturnAdmission(b.ctx, review(m.Reservation, "op-2")); err != nil {
		t.Error(err)
	}
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	if _, err := b.store.ReleaseReservation(b.ctx, review(last.Reservation(), "op-3")); !errors.Is(err, shard.ErrFenced) {
		t.Errorf("an old owner: %v", err)
	}
	if v := one[int64](b, "SELECT max(fence_version) FROM cellquota.v_review_endings"); v != 3 {
		t.Errorf("written under %d", v)
	}
	b.invariants()
}

// TestOneReviewEndsOnce: many at once, by many operations and one; and against the channel's late word.
func TestOneReviewEndsOnce(t *testing.T) {
	b := newBench(t)
	b.sell(20)
	o, other := b.inReview("u"), b.inReview("v")
	m := b.parked("p")
	ends := make([]error, 24)
	var wg sync.WaitGroup
	for i := range ends {
		op := "op-" + string(rune('a'+i%8))
		wg.Go(func() {
			switch i % 3 {
			case 0:
				_, ends[i] = b.store.ReleaseReservation(b.ctx, review(o.Reservation(), op))
			case 1:
				_, ends[i] = b.store.ReleaseReservation(b.ctx, review(other.Reservation(), op))
			default:
				_, ends[i] = b.store.ReturnAdmission(b.ctx, review(m.Reservation, op))
			}
		})
	}
	wg.Wait()
	for i, err := range ends {
		if err != nil && !errors.Is(err, shard.ErrOperationUsed) && !errors.Is(err, reservation.ErrNotInReview) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.review_endings"); n != 3 {
		t.Errorf("%d endings of 3 reviews", n)
	}
	for range 5 {
		race := b.inReview("race-" + string(rune('a'+b.next%26)) + "x")
		var paid shard.StepResult
		var release error
		wg.Go(func() {
			res, err := b.store.StepOrders(b.ctx, grace, []shard.Step{{Kind: shard.StepSucceeded, Order: race, Payment: "p", Amount: price, FromChannel: true}})
			if err == nil {
				paid = res[0]
			}
		})
		wg.Go(func() { _, release = b.store.ReleaseReservation(b.ctx, review(race.Reservation(), "op-"+string(race))) })
		wg.Wait()
		var not *shard.NotInReview
		switch {
		case release == nil && paid.Payment == shard.PaymentPaidAfterClose && paid.Refund != "":
		case errors.As(release, &not) && not.Is == "CONFIRMED" && paid.Payment == shard.PaymentSucceeded:
		default:
			t.Errorf("released %v, paid %+v", release, paid)
		}
	}
	b.invariants()
}
