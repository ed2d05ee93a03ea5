package shard_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var update = flag.Bool("update", false, "write testdata anew; read what changed")

// standing is a state that an order can be in, made by steps; at is when it is met, after it was made: the
// orders expire 10 s after that, and an open attempt has 10 s more.
type standing struct {
	name  string
	at    time.Duration
	steps []string
}

// standings are the rows. Steps are those of happening; p is the attempt that they are about.
var standings = []standing{
	{"open", 0, nil},
	{"INITIATED", 0, []string{"start p"}},
	{"UNKNOWN", 0, []string{"start p", "pending p"}},
	{"FAILED", 0, []string{"start p", "failed p"}},
	{"MISMATCH", 0, []string{"cheap p"}},
	{"two INITIATED", 0, []string{"start p", "start q"}},
	{"in review", 0, []string{"start p", "silent p"}},
	{"PAID", 0, []string{"start p", "succeeded p"}},
	{"PAID, q INITIATED", 0, []string{"start p", "start q", "succeeded p"}},
	{"REFUND_PENDING", 0, []string{"succeeded p", "refund"}},
	{"a part REFUNDED", 0, []string{"succeeded p", "part p"}},
	{"REFUNDED", 0, []string{"succeeded p", "refunded p"}},
	{"cancelled", 0, []string{"cancel"}},
	{"cancelled, p FAILED", 0, []string{"start p", "failed p", "cancel"}},
	{"PAID_AFTER_CLOSE", 0, []string{"cancel", "succeeded p"}},
	{"PAID_AFTER_CLOSE, refunded", 0, []string{"cancel", "succeeded p", "refunded p"}},
	{"released out of review", 0, []string{"start p", "silent p", "end"}},
	{"expired", 10 * time.Second, nil},
	{"expired, INITIATED", 10 * time.Second, []string{"start p"}},
	{"expired, FAILED", 10 * time.Second, []string{"start p", "failed p"}},
	{"expired, in review", 10 * time.Second, []string{"start p", "silent p"}},
	{"at the deadline, INITIATED", 20 * time.Second, []string{"start p"}},
	{"at the deadline, UNKNOWN", 20 * time.Second, []string{"start p", "pending p"}},
	{"past all patience, UNKNOWN", 35 * time.Second, []string{"start p", "pending p"}},
}

// happenings are the columns, each of them twice in a row: what is told again changes nothing more.
var happenings = []string{
	"start p", "start q", "pending p", "failed p", "succeeded p", "succeeded q", "cheap p", "dollars q", "silent p", "cancel", "closer",
	"refund", "refunded p", "part p", "refunded q", "end",
}

// happen makes one thing happen to an order and names the refusal.
func (b *bench) happen(o ids.OrderID, user ids.UserID, what string) string {
	b.t.Helper()
	kind, payment, _ := strings.Cut(what, " ")
	s := shard.Step{Order: o, Payment: ids.PaymentID(payment)}
	channel := func(k shard.StepKind, m reservation.Money) {
		s.Kind, s.Amount, s.FromChannel = k, m, true
	}
	switch kind {
	case "start":
		s.Kind, s.User = shard.StepStart, user
	case "cancel":
		s.Kind, s.User = shard.StepCancel, user
	case "silent":
		s.Kind = shard.StepSilent
	case "pending":
		channel(shard.StepPending, price)
	case "failed":
		channel(shard.StepFailed, price)
	case "succeeded":
		channel(shard.StepSucceeded, price)
	case "cheap":
		channel(shard.StepSucceeded, reservation.Money{Tenthousandths: 1, Currency: price.Currency})
	case "dollars":
		channel(shard.StepSucceeded, reservation.Money{Tenthousandths: price.Tenthousandths, Currency: "USD"})
	case "refund":
		s = wantRefund(o, "rf-"+string(o))
	case "refunded":
		channel(shard.StepRefunded, price)
		s.RefundID = "theirs-" + string(o)
	case "part":
		channel(shard.StepRefunded, reservation.Money{Tenthousandths: 1, Currency: price.Currency})
		s.RefundID = "part-" + string(o)
	case "end":
		_, err := b.store.ReleaseReservation(b.ctx, review(o.Reservation(), "op-"+string(o)))
		return refusal(err)
	default:
		b.t.Fatalf("nobody knows how %q happens", what)
	}
	return refusal(b.step(s).Err)
}

// refusal is the word by which customers and channels know it.
func refusal(err error) string {
	for word, sentinel := range map[string]error{
		"ORDER_PAID": reservation.ErrOrderPaid, "ORDER_CLOSED": reservation.ErrOrderClosed, "PAYMENT_IN_PROGRESS": reservation.ErrPaymentInProgress,
		"NOT_IN_REVIEW": reservation.ErrNotInReview, "PAYMENT_MISMATCH": shard.ErrPaymentMismatch, "ORDER_NOT_PAID": shard.ErrNeverPaid,
		"REFUND_UNDER_WAY": shard.ErrRefundUnderWay, "ORDER_REFUNDED": shard.ErrRefunded, "NOT_FOUND": shard.ErrNotFound,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// facts are what the database says of an order, without the code under test: order and reservation with the
// reason, attempts, refunds, until when closing waits after expires_at, ledger entries, events and refused
// callbacks.
func (b *bench) facts(o ids.OrderID) (text string, version int64) {
	b.t.Helper()
	b.must(b.admin.QueryRow(b.ctx, `SELECT concat_ws(' ', o.state || CASE WHEN o.reason <> '' THEN ':' || o.reason ELSE '' END, CASE r.state WHEN 'MANUAL_REVIEW' THEN r.state END,
		CASE WHEN o.state <> 'PENDING_PAYMENT' THEN NULL WHEN o.close_after = 'infinity' THEN 'closes never' ELSE 'closes +' || extract(epoch FROM o.close_after - o.expires_at)::int END,
		(SELECT string_agg(payment_id || '=' || state, ' ' ORDER BY payment_id) FROM cellquota.payments p WHERE p.order_id = o.order_id),
		(SELECT string_agg('refund(' || concat_ws(' ', payment_id, cause, state, CASE WHEN part THEN 'part' END, CASE WHEN restocked THEN 'restocked' END) || ')', ' '
			ORDER BY payment_id, cause, state, part) FROM cellquota.refunds f WHERE f.order_id = o.order_id),
		'ledger[' || (SELECT string_agg(action, ' ' ORDER BY entry_id) FROM cellquota.ledger l WHERE l.business_no = o.reservation_id
			OR l.business_no IN (SELECT refund_id FROM cellquota.refunds f WHERE f.order_id = o.order_id)) || ']',
		'events[' || (SELECT string_agg(event_type, ' ' ORDER BY outbox_id) FROM cellquota.outbox e WHERE target = 'EVENTS' AND event_type <> 'order-created'
			AND (e.aggregate = 'req/' || o.reservation_id OR e.aggregate IN (SELECT 'refund/' || refund_id FROM cellquota.refunds f WHERE f.order_id = o.order_id))) || ']',
		nullif((SELECT count(*) FROM cellquota.payment_refusals x WHERE x.order_id = o.order_id), 0) || ' refused'), o.version
		FROM cellquota.orders o JOIN cellquota.reservations r USING (reservation_id) WHERE o.order_id = $1`, o).Scan(&text, &version))
	return text, version
}

// cellOfTable is one field: an order in a standing, and what is about to happen.
type cellOfTable struct {
	standing
	what  string
	user  ids.UserID
	order ids.OrderID
	line  string
}

// TestPaymentsTable is the table of architecture 6, Payments and Closing: every standing × every happening,
// each twice, on a real shard. What each leads to is in
// testdata/payments.txt, to be read; what no cell may break is in rulesOfPayment.
func TestPaymentsTable(t *testing.T) {
	for _, rule := range []cellquotav1.RefundRule{cellquotav1.RefundRule_REFUND_RULE_RESTOCK, cellquotav1.RefundRule_REFUND_RULE_NO_RESTOCK} {
		t.Run(rule.String(), func(t *testing.T) {
			b := newBench(t)
			b.ownClock()
			b.sell(1000, shortTTL, longWindow, func(r *cellquotav1.CampaignRules) { r.Spec.RefundRule = rule })
			b.must(b.store.Heartbeat(b.ctx))
			cells := b.table()
			var past time.Duration
			for _, at := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 35 * time.Second} {
				b.advance(at - past)
				past = at
				b.must(b.store.Heartbeat(b.ctx))
				b.fill(cells, at, rule == cellquotav1.RefundRule_REFUND_RULE_RESTOCK)
			}
			b.invariants()
			if rule == cellquotav1.RefundRule_REFUND_RULE_RESTOCK {
				compareTable(t, cells)
			}
		})
	}
}

// table makes an order for every cell and brings it to its standing.
func (b *bench) table() []*cellOfTable {
	b.t.Helper()
	var cells []*cellOfTable
	var messages []shard.Message
	for i, s := range standings {
		for j, what := range happenings {
			c := &cellOfTable{standing: s, what: what, user: ids.UserID(fmt.Sprintf("u-%d-%d", i, j))}
			m := b.message(string(c.user))
			c.order = m.Reservation.Order()
			cells, messages = append(cells, c), append(messages, m)
		}
	}
	for _, d := range b.apply(messages...) {
		if d.Outcome != shard.Ordered {
			b.t.Fatalf("%+v", d)
		}
	}
	for _, c := range cells {
		for _, step := range c.steps {
			if refused := b.happen(c.order, c.user, step); refused != "" && refused != "PAYMENT_MISMATCH" {
				b.t.Fatalf("%s: %s: %s", c.name, step, refused)
			}
		}
	}
	return cells
}

// fill lets what happens at a time happen; the closer, which takes whatever is due, comes last.
func (b *bench) fill(cells []*cellOfTable, at time.Duration, restock bool) {
	b.t.Helper()
	before := map[*cellOfTable][2]string{}
	for _, closer := range []bool{false, true} {
		for _, c := range cells {
			if c.at != at || (c.what == "closer") != closer {
				continue
			}
			was, version := b.facts(c.order)
			if closer {
				before[c] = [2]string{was, fmt.Sprint(version)}
				continue
			}
			stock := b.stock(phone)
			refused := b.happen(c.order, c.user, c.what)
			now, next := b.facts(c.order)
			moved := b.stock(phone)
			if again := b.happen(c.order, c.user, c.what); again != refused {
				b.t.Errorf("%s × %s: told again, %q became %q", c.name, c.what, refused, again)
			}
			later, _ := b.facts(c.order)
			if later != now {
				b.t.Errorf("%s × %s: told again, it went from\n%s to\n%s", c.name, c.what, now, later)
			}
			c.line = line(was, now, refused)
			rulesOfPayment(b.t, c, was, now, refused, next-version, moved.Available-stock.Available, restock)
		}
	}
	closed, asked := b.closeDue(shard.CloseWaits{Attempt: grace})
	named := map[ids.OrderID]bool{}
	for _, a := range asked {
		named[a.Order] = true
	}
	for _, r := range closed {
		if !r.Closed {
			b.t.Errorf("the closer touched %s", r.Order.ID)
		}
	}
	for c, was := range before {
		now, _ := b.facts(c.order)
		refused := ""
		if named[c.order] {
			refused = "asks the channel"
			now = was[0] // it is leased to its asker
		}
		c.line = line(was[0], now, refused)
		rulesOfPayment(b.t, c, was[0], now, "", 1, 0, restock)
	}
}

func line(was, now, refused string) string {
	text := "="
	if now != was {
		text = now
	}
	if refused != "" {
		text = refused + " " + text
	}
	return text
}

// rulesOfPayment are the rules that hold in every cell.
func rulesOfPayment(t testing.TB, c *cellOfTable, was, now, refused string, versions int64, returned int32, restock bool) {
	t.Helper()
	fail := func(rule string) {
		t.Helper()
		t.Errorf("%s × %s: %s\nwas %s\nnow %s (%s)", c.name, c.what, rule, was, now, refused)
	}
	count := strings.Count
	state := func(s string) string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ':' })[0]
	}
	for _, end := range []string{"PAID", "CLOSED"} {
		if state(was) == end && state(now) != end {
			fail("a terminal state was left")
		}
	}
	switch {
	case state(was) != state(now) && versions < 1:
		fail("another state without another version (R-057)")
	case strings.Contains(now, "=INITIATED") && !strings.Contains(was, "=INITIATED") && c.at > 0:
		fail("an attempt started after expires_at")
	case count(now, "CONFIRM")+count(now, "RELEASE") > 1: // I7
		fail("confirmed and released")
	case (count(now, "CONFIRM") == 1) != (state(now) == "PAID"), (count(now, "RELEASE") == 1) != (state(now) == "CLOSED"):
		fail("the ledger does not fit the state (R-103)")
	case state(now) == "CLOSED" && count(now, "=SUCCEEDED") > 0, count(now, "=SUCCEEDED")+count(now, "=REFUND_PENDING") > 1:
		fail("money stands on an order that it does not pay (R-203)")
	case count(now, "refund-requested") > count(now, "=PAID_AFTER_CLOSE")+count(now, "=REFUND_PENDING")+count(now, "=REFUNDED"):
		fail("more refunds asked for than attempts that took money")
	case strings.Contains(now, "=PAID_AFTER_CLOSE") && count(now, "refund-requested") < count(now, "=PAID_AFTER_CLOSE"):
		fail("late money without its refund (R-060)")
	case !restock && strings.Contains(now, "RESTOCK"), strings.Contains(now, "part restocked"), count(now, "RESTOCK") > 1:
		fail("a refund returned units that it must not (R-015)")
	case returned > 0 && state(was) == state(now) && count(now, "RESTOCK") == count(was, "RESTOCK"):
		fail("units returned without their reason")
	case refused == "PAYMENT_IN_PROGRESS" && now != was, refused == "ORDER_PAID" && now != was, refused == "ORDER_CLOSED" && now != was:
		fail("a refusal changed the order")
	case waits(now) > min(max(grace, c.at-10*time.Second+time.Second), 2*grace):
		fail("closing waits longer than an open attempt may have it wait")
	case waits(now) > 0 && !strings.Contains(now, "=INITIATED") && !strings.Contains(now, "=UNKNOWN") && !strings.Contains(now, "=MISMATCH"):
		fail("closing waits for no attempt")
	case state(now) == "PENDING_PAYMENT" && strings.Count(now, "=UNKNOWN")+strings.Count(now, "=INITIATED") > strings.Count(was, "=UNKNOWN")+strings.Count(was, "=INITIATED") && versions < 1:
		fail("an attempt without a bump: a closer that looked before would close the order")
	}
}

// waits is how long after expires_at closing waits.
func waits(facts string) time.Duration {
	var seconds int
	if _, rest, found := strings.Cut(facts, "closes +"); found {
		_, _ = fmt.Sscanf(rest, "%d", &seconds)
	}
	return time.Duration(seconds) * time.Second
}

// compareTable compares with what somebody has read.
func compareTable(t *testing.T, cells []*cellOfTable) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Every standing of an order × everything that happens to it, refund_rule RESTOCK. \"=\": nothing changes.\n" +
		"# A refusal stands first. closes +N: the closer looks N s after expires_at. Written by -update; read the difference.\n")
	name := ""
	for _, c := range cells {
		if c.name != name {
			name = c.name
			b.WriteString("\n" + name + "\n")
		}
		fmt.Fprintf(&b, "  %-12s %s\n", c.what, c.line)
	}
	const file = "testdata/payments.txt"
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(b.String()), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("the table differs from %s; it is\n%s", file, b.String())
	}
}
