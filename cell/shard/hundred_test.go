package shard_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestHundredConsumersOfOneMessage is R-272, C-04 and C-05: a hundred consumers have the same
// message at once, each as a record of a partition of its own, so that no position stands between them. One
// makes the order; the others find its outcome.
func TestHundredConsumersOfOneMessage(t *testing.T) {
	const consumers = 100
	b := newBench(t)
	b.sell(consumers)
	m := b.message("u")
	var ordered, found atomic.Int32
	parallel(b, consumers, func(i int32) error {
		from := shard.Position{Topic: topic, Partition: i + 1, TopicID: topicID, Epoch: -1}
		if err := b.store.StartPosition(b.ctx, from); err != nil {
			return err
		}
		mine := m
		mine.Offset = int64(i)
		res, err := b.store.ApplyOrders(b.ctx, shard.Batch{From: from, To: mine.Offset + 1, Messages: []shard.Message{mine}})
		switch {
		case err != nil:
			return err
		case res.Decisions[0].Duplicate:
			found.Add(1)
		case res.Decisions[0].Outcome == shard.Ordered:
			ordered.Add(1)
		default:
			t.Errorf("consumer %d: %+v", i, res.Decisions[0])
		}
		return nil
	})
	if ordered.Load() != 1 || found.Load() != consumers-1 {
		t.Errorf("%d consumers made the order, %d found it", ordered.Load(), found.Load())
	}
	for _, table := range []string{"orders", "reservations", "inbox", "buyers", "ledger WHERE action = 'RESERVE'"} {
		if n := one[int](b, "SELECT count(*) FROM cellquota."+table); n != 1 {
			t.Errorf("%d rows of %s", n, table)
		}
	}
	if s := b.stock(phone); s.Available != consumers-1 || s.Reserved != 1 {
		t.Errorf("stock %+v", s)
	}
	b.invariants()
}

// TestHundredCompensatorsOfOneReservation is R-273 and C-08: a hundred at once give one reservation
// back: its customer, closers whose time has come, and the channel that says that nobody paid. One release.
func TestHundredCompensatorsOfOneReservation(t *testing.T) {
	const compensators = 100
	b := newBench(t)
	b.ownClock()
	b.sell(1, shortTTL, longWindow)
	b.must(b.store.Heartbeat(b.ctx))
	order := b.order("u")
	b.advance(10 * time.Second)
	parallel(b, compensators, func(i int32) error {
		var err error
		switch i % 3 {
		case 0:
			_, _, err = b.store.CloseDue(b.ctx, 10, shard.CloseWaits{})
		case 1:
			var res []shard.StepResult
			res, err = b.store.StepOrders(b.ctx, grace, []shard.Step{{Kind: shard.StepCancel, Order: order, User: "u"}})
			if err == nil && res[0].Err != nil && !errors.Is(res[0].Err, reservation.ErrOrderClosed) {
				t.Errorf("cancelling: %v", res[0].Err)
			}
		default:
			_, err = b.store.StepOrders(b.ctx, grace, []shard.Step{{Kind: shard.StepFailed, Order: order, Payment: "p", FromChannel: true, Amount: price}})
		}
		return err
	})
	if n := one[int](b, "SELECT count(*) FROM cellquota.ledger WHERE action = 'RELEASE'"); n != 1 {
		t.Errorf("%d releases", n)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'release'"); n != 1 {
		t.Errorf("%d give-backs to the mirror", n)
	}
	if s := b.stock(phone); s.Available != 1 || s.Released != 1 || s.Reserved != 0 {
		t.Errorf("stock %+v", s)
	}
	b.invariants()
}

// TestK14FourKeysFourOutcomes: the four unique keys that a message can meet are told apart: its reservation (it
// had its outcome), its request under another build (the first reservation's order stands), its user (another
// request holds the place), a token (none is free). None is an error, and each is told in the same delivery.
func TestK14FourKeysFourOutcomes(t *testing.T) {
	b := newBench(t)
	b.sell(2, tokens)
	first := b.message("u")
	b.apply(first)
	b.raiseNext(string(phone))
	again := first
	again.Offset, b.next = b.next, b.next+1
	got := b.apply(again)
	if !got[0].Duplicate {
		t.Errorf("its reservation: %+v", got[0])
	}
	for key, m := range map[string]shard.Message{
		"its request under another build": b.message("u"),
		"its user":                        b.message("u", func(m *shard.Message) { m.Request = "other" }),
	} {
		m.Offset, b.next = b.next, b.next+1
		d := b.apply(m)[0]
		if d.Outcome != shard.Rejected || d.Reason != reservation.AlreadyReserved {
			t.Errorf("%s: %+v", key, d)
		}
		e := b.effects()["settle-"+string(m.Reservation)]
		if e.GetWinnerReservationId() != string(first.Reservation) || e.GetStockDelta() != 1 {
			t.Errorf("%s: effect %v", key, e)
		}
	}
	b.exec(b.admin, "UPDATE cellquota.tokens SET state = 'SEALED' WHERE state = 'FREE'")
	if d := b.apply(b.message("v"))[0]; d.Reason != reservation.SoldOut {
		t.Errorf("a token: %+v", d)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.orders"); n != 1 {
		t.Errorf("%d orders", n)
	}
}

// TestABacklogOlderThanAReservation is R-276: a message that waited in the log for an hour, while a reservation
// is good for ten seconds. Window and permit are judged as of its admission, and its buyer has his full time
// to pay, counted from the order.
func TestABacklogOlderThanAReservation(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(1, shortTTL, longWindow, func(r *cellquotav1.CampaignRules) { r.Spec.OpenAt.Seconds -= 7200 })
	b.must(b.store.Heartbeat(b.ctx))
	order := b.order("u", func(m *shard.Message) {
		m.AdmittedAt = m.AdmittedAt.Add(-time.Hour)
		m.PermitExpiresAt = m.AdmittedAt.Add(time.Minute)
	})
	b.advance(9 * time.Second)
	if closed, _ := b.closeDue(shard.CloseWaits{}); len(closed) != 0 {
		t.Fatalf("closed before its buyer had his time: %+v", closed)
	}
	if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: order, Payment: "p", Amount: price, FromChannel: true}); r.Err != nil || r.Order.State != reservation.OrderPaid {
		t.Fatalf("paid in time: %+v", r)
	}
	b.invariants()
}
