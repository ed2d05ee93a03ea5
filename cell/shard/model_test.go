package shard_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// model is the dumb twin of one SKU's shard: what must be true, in plain Go.
type model struct {
	granted, available, reserved, confirmed int32
	orders                                  map[string]*modelOrder    // by user
	seen                                    map[string]shard.Decision // by reservation, and by user and request
	refunds                                 int
	expired                                 int // rounds of the clock that have passed
}

type modelOrder struct {
	id       ids.OrderID
	quantity int32
	state    reservation.OrderState
	open     map[string]bool // attempts
	taken    map[string]bool
	paidBy   string
	back     map[string]bool // attempts whose money went back
	wanted   bool            // a refund of paidBy, by an operator
	born     int
}

// TestModel drives random histories against shard and twin and compares them after every step: I2, I3,
// I5 and I7 hold at each, and the answers are the twin's. In TOKEN mode every unit's row does as well.
func TestModel(t *testing.T) {
	for name, mode := range map[string]func(*cellquotav1.CampaignRules){"COUNTER": func(*cellquotav1.CampaignRules) {}, "TOKEN": tokens} {
		t.Run(name, func(t *testing.T) { walk(t, mode) })
	}
}

func walk(t *testing.T, mode func(*cellquotav1.CampaignRules)) {
	b := newBench(t)
	b.ownClock()
	rapid.Check(t, func(rt *rapid.T) {
		b.ctx = testkit.Deadline(t) // of one history, not of all
		b.wipe()
		b.sell(1, shortTTL, longWindow, restocks, mode)
		b.must(b.store.Heartbeat(b.ctx))
		m := &model{granted: 1, available: 1, orders: map[string]*modelOrder{}, seen: map[string]shard.Decision{}}
		var sent []shard.Message
		rt.Repeat(map[string]func(*rapid.T){
			"grant": func(rt *rapid.T) {
				n := rapid.Int32Range(1, 3).Draw(rt, "units")
				b.grant(phone, n)
				m.granted, m.available = m.granted+n, m.available+n
			},
			"return": func(rt *rapid.T) {
				n := rapid.Int32Range(1, 3).Draw(rt, "units")
				res, err := b.store.ApplyAdjustment(b.ctx, b.numbered(phone, shard.Return, n))
				b.must(err)
				if (res.Outcome == shard.Applied) != (m.available >= n) {
					rt.Fatalf("return of %d with %d available: %s", n, m.available, res.Outcome)
				}
				if res.Outcome == shard.Applied {
					m.granted, m.available = m.granted-n, m.available-n
				}
			},
			"batch": func(rt *rapid.T) {
				var msgs []shard.Message
				for _, u := range rapid.SliceOfNDistinct(rapid.IntRange(0, 7), 1, 4, rapid.ID[int]).Draw(rt, "users") {
					request := rapid.SampledFrom([]string{"r1", "r2"}).Draw(rt, "request")
					q := rapid.Int32Range(1, 2).Draw(rt, "quantity")
					msgs = append(msgs, b.message(fmt.Sprint("u", u), func(x *shard.Message) { x.Request, x.Quantity = ids.RequestID(request), q }))
				}
				sent = append(sent, msgs...)
				m.deliver(rt, msgs, b.apply(msgs...))
			},
			"redeliver": func(rt *rapid.T) {
				if len(sent) == 0 {
					return // nothing was sent yet
				}
				x := rapid.SampledFrom(sent).Draw(rt, "message")
				x.Offset = b.next
				b.next++
				m.deliver(rt, []shard.Message{x}, b.apply(x))
			},
			"start":   m.stepper(b, shard.StepStart),
			"succeed": m.stepper(b, shard.StepSucceeded),
			"fail":    m.stepper(b, shard.StepFailed),
			"pending": m.stepper(b, shard.StepPending),
			"cancel":  m.stepper(b, shard.StepCancel),
			"want":    m.want(b),
			"fence and restore": func(*rapid.T) {
				b.fenceAndRestore()
				m.granted, m.available = m.granted-m.available, 0
			},
			"refund": m.refund(b),
			"time": func(rt *rapid.T) {
				b.advance(20 * time.Second) // everything born before is over, and so is the grace of its attempts
				m.expired++
				b.must(b.store.Heartbeat(b.ctx))
				closed, _ := b.closeDue(shard.CloseWaits{Attempt: grace})
				for _, c := range closed {
					m.close(rt, string(c.Order.User))
				}
				for user, o := range m.orders {
					if o.state == reservation.PendingPayment && len(o.open) == 0 && o.born < m.expired {
						rt.Fatalf("order of %s is due and open", user)
					}
				}
			},
			"": func(rt *rapid.T) { m.compare(rt, b) },
		})
	})
}

// wipe empties the shard but for its fence and its clock. The ledger's triggers are the owner's to lift.
func (b *bench) wipe() {
	b.t.Helper()
	b.exec(b.admin, "SET session_replication_role = replica")
	b.exec(b.admin, `TRUNCATE cellquota.stock, cellquota.ledger, cellquota.orders, cellquota.reservations, cellquota.buyers, cellquota.inbox, cellquota.outbox,
		cellquota.adjustments, cellquota.payments, cellquota.refunds, cellquota.payment_refusals, cellquota.mirrors, cellquota.positions, cellquota.buckets, cellquota.skus, cellquota.campaigns, cellquota.heartbeat, cellquota.tokens, cellquota.findings, cellquota.fence_history`)
	b.exec(b.admin, "UPDATE cellquota.fence SET fence_version = 1, messages_from = 1, state = 'ACTIVE'")
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	b.exec(b.admin, "SET session_replication_role = DEFAULT")
	b.next = 0
}

// fenceAndRestore seals what is available and gives the shard back under a higher version, as the
// control plane does; a new mirror follows.
func (b *bench) fenceAndRestore() {
	b.t.Helper()
	w, _ := b.store.Writer()
	b.exec(b.admin, "SET ROLE cellquota_fencer") // one connection, however often a history fences
	_, err := b.fence(b.admin, w.FenceVersion+1, time.Second)
	b.must(err)
	b.exec(b.admin, "SELECT cellquota.restore_cell($1, $2, $3, 'test', 1000)", string(cellID), w.FenceVersion+2, group)
	b.exec(b.admin, "SELECT cellquota.activate_cell($1, $2, 'test', 1000)", string(cellID), w.FenceVersion+2)
	b.exec(b.admin, "RESET ROLE")
	b.store.SetWriter(shard.Writer{FenceVersion: w.FenceVersion + 2, Group: group})
	b.raise(string(phone))
}

// deliver is the twin of a batch.
func (m *model) deliver(t *rapid.T, msgs []shard.Message, got []shard.Decision) {
	decided := map[string]shard.Decision{}
	for i, x := range msgs {
		key, request := string(x.Reservation), string(x.User)+"/"+string(x.Request)
		want := shard.Decision{Outcome: shard.Ordered}
		o := m.orders[string(x.User)]
		earlier, tried := m.seen[request] // under another build
		switch _, known := m.seen[key]; {
		case known:
			want = shard.Decision{Duplicate: true}
		case tried && earlier.Outcome == shard.Rejected:
			want = earlier // final for its request id
		case o != nil && o.state == reservation.OrderPaid:
			want = shard.Decision{Outcome: shard.Rejected, Reason: reservation.AlreadyPurchased}
		case o != nil && o.state == reservation.OrderClosed:
			want = shard.Decision{Outcome: shard.Rejected, Reason: reservation.OrderWasClosed}
		case o != nil:
			want = shard.Decision{Outcome: shard.Rejected, Reason: reservation.AlreadyReserved}
		case m.available < x.Quantity:
			want = shard.Decision{Outcome: shard.Rejected, Reason: reservation.SoldOut}
		default:
			m.available, m.reserved = m.available-x.Quantity, m.reserved+x.Quantity
			m.orders[string(x.User)] = &modelOrder{
				id: x.Reservation.Order(), quantity: x.Quantity, state: reservation.PendingPayment, open: map[string]bool{}, taken: map[string]bool{}, back: map[string]bool{}, born: m.expired,
			}
		}
		if got[i].Outcome != want.Outcome || got[i].Reason != want.Reason || got[i].Duplicate != want.Duplicate {
			t.Fatalf("message %s: %+v, the twin says %+v", key, got[i], want)
		}
		if !want.Duplicate {
			decided[key] = want
			if !tried || earlier.Outcome != shard.Rejected {
				decided[request] = want
			}
		}
	}
	maps.Copy(m.seen, decided)
}

// stepper drives one kind of step on a random order by one of two attempts.
func (m *model) stepper(b *bench, kind shard.StepKind) func(*rapid.T) {
	return func(t *rapid.T) {
		users := slices.Sorted(maps.Keys(m.orders))
		if len(users) == 0 {
			return // no orders yet
		}
		user := rapid.SampledFrom(users).Draw(t, "user")
		payment := rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "payment")
		o := m.orders[user]
		s := shard.Step{Kind: kind, Order: o.id, User: ids.UserID(user), Payment: ids.PaymentID(payment)}
		if kind == shard.StepCancel {
			s.Payment = ""
		}
		res := b.step(s)
		pending, expired := o.state == reservation.PendingPayment, o.born < m.expired
		known := one[int](b, "SELECT count(*) FROM cellquota.payments WHERE order_id = $1 AND payment_id = $2", string(o.id), payment) > 0
		switch kind {
		case shard.StepStart:
			if res.Err == nil && pending && !expired && res.Payment == shard.PaymentInitiated {
				o.open[payment] = true
			}
			if res.Err == nil && !known {
				t.Fatal("a start without a row")
			}
		case shard.StepSucceeded:
			if res.Err != nil {
				t.Fatalf("a success was refused: %v", res.Err)
			}
			switch {
			case o.taken[payment]:
				if res.Refund != "" {
					t.Fatal("a repeat was refunded")
				}
			case pending:
				o.state, o.taken[payment], o.paidBy = reservation.OrderPaid, true, payment
				delete(o.open, payment)
				m.reserved, m.confirmed = m.reserved-o.quantity, m.confirmed+o.quantity
			default:
				o.taken[payment] = true
				m.refunds++
				if res.Refund == "" {
					t.Fatal("money taken from a settled order is not refunded")
				}
			}
		case shard.StepFailed:
			if res.Payment == shard.PaymentFailed {
				delete(o.open, payment)
			}
		case shard.StepPending:
			if res.Payment == shard.PaymentUnknown && pending {
				o.open[payment] = true
			}
		case shard.StepCancel:
			if allowed := pending && len(o.open) == 0; allowed != (res.Err == nil) && o.state != reservation.OrderClosed {
				t.Fatalf("cancel: %v, open attempts %v, state %s", res.Err, o.open, o.state)
			}
			if res.Err == nil && pending {
				m.close(t, user)
			}
		}
	}
}

// pick draws an order; nil: there is none.
func (m *model) pick(t *rapid.T) *modelOrder {
	users := slices.Sorted(maps.Keys(m.orders))
	if len(users) == 0 {
		return nil
	}
	return m.orders[rapid.SampledFrom(users).Draw(t, "user")]
}

// want asks for an order's refund, under one of two ids.
func (m *model) want(b *bench) func(*rapid.T) {
	return func(t *rapid.T) {
		o := m.pick(t)
		if o == nil {
			return
		}
		own := !o.wanted && !o.back[o.paidBy] || rapid.Bool().Draw(t, "own id")
		id := "want-" + string(o.id)
		if !own {
			id = "other-" + string(o.id)
		}
		res := b.step(wantRefund(o.id, id))
		var want error
		switch late := len(o.taken) > 0; {
		case o.state == reservation.OrderClosed && late: // goes back on its own
		case o.state != reservation.OrderPaid:
			want = shard.ErrNeverPaid
		case o.wanted && own:
		case o.back[o.paidBy]:
			want = shard.ErrRefunded
		case o.wanted:
			want = shard.ErrRefundUnderWay
		default:
			o.wanted = true
			m.refunds++
			if res.Refund != shard.RefundRequested {
				t.Fatalf("not wanted: %+v", res)
			}
			return
		}
		if !errors.Is(res.Err, want) || res.Refund != "" {
			t.Fatalf("refund of an order %s, wanted %v, back %v: %+v, the twin says %v", o.state, o.wanted, o.back, res, want)
		}
	}
}

// refund tells that an attempt's money went back, by the loop or by the channel.
func (m *model) refund(b *bench) func(*rapid.T) {
	return func(t *rapid.T) {
		o := m.pick(t)
		if o == nil {
			return
		}
		payment := rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "payment")
		s := shard.Step{Kind: shard.StepRefunded, Order: o.id, Payment: ids.PaymentID(payment)}
		if rapid.Bool().Draw(t, "by callback") {
			s.FromChannel, s.RefundID = true, "theirs-"+payment+string(o.id)
			s.Amount = reservation.Money{Tenthousandths: price.Tenthousandths * int64(o.quantity), Currency: price.Currency}
		}
		res := b.step(s)
		if o.taken[payment] != (res.Err == nil) {
			t.Fatalf("money of %s went back, taken %v: %+v", payment, o.taken, res)
		}
		if res.Err != nil || o.back[payment] {
			return
		}
		o.back[payment] = true
		if payment == o.paidBy {
			m.confirmed, m.available = m.confirmed-o.quantity, m.available+o.quantity
		}
	}
}

func (m *model) close(t *rapid.T, user string) {
	o := m.orders[user]
	if o.state != reservation.PendingPayment || len(o.open) > 0 {
		t.Fatalf("closed order of %s: %s with attempts %v", user, o.state, o.open)
	}
	o.state = reservation.OrderClosed
	m.reserved, m.available = m.reserved-o.quantity, m.available+o.quantity
}

func (m *model) compare(t *rapid.T, b *bench) {
	s := b.stock(phone)
	if s.Granted != m.granted || s.Available != m.available || s.Reserved != m.reserved || s.Confirmed != m.confirmed {
		t.Fatalf("stock %+v, the twin has %+v", s, *m)
	}
	if s.Reserved+s.Confirmed > s.Granted {
		t.Fatalf("oversold: %+v", s)
	}
	var want []string
	for user, o := range m.orders {
		want = append(want, user+" "+string(o.state))
	}
	slices.Sort(want)
	if got := one[string](b, "SELECT coalesce(string_agg(user_id || ' ' || state, ', ' ORDER BY user_id), '') FROM cellquota.orders"); got != strings.Join(want, ", ") {
		t.Fatalf("orders are %s, the twin says %v", got, want)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'refund-requested'"); n != m.refunds {
		t.Fatalf("%d refunds, the twin has %d", n, m.refunds)
	}
	b.invariants()
	if b.t.Failed() {
		t.Fatal("an invariant is broken")
	}
}
