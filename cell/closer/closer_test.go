package closer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/cell/closer"
	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// bench is a shard whose clock the test owns, with orders of users u0, u1, … that end after a minute.
type bench struct {
	*shardtest.Shard
	t     *testing.T
	order []ids.OrderID
}

func newBench(t *testing.T, orders int) *bench {
	t.Helper()
	s := shardtest.New(t, orders)
	return &bench{Shard: s, t: t, order: s.Orders}
}

func (b *bench) loop(store closer.Store, channel provider.Provider, clk clock.Clock) (*closer.Loop, *prometheus.Registry) {
	b.t.Helper()
	reg := prometheus.NewRegistry()
	l, err := closer.New(store, channel, closer.Config{Batch: 50, Waits: shard.CloseWaits{Attempt: 10 * time.Second}}, clk, slog.New(slog.DiscardHandler), reg)
	b.Must(err)
	return l, reg
}

// TestManyClosers is K77: four at once, a thousand due: a thousand releases, no more.
func TestManyClosers(t *testing.T) {
	b := newBench(t, 1000)
	b.Advance(time.Minute)
	var wg sync.WaitGroup
	var regs []*prometheus.Registry
	for range 4 {
		l, reg := b.loop(b.Open(), &provider.Sandbox{}, clock.System())
		regs = append(regs, reg)
		wg.Go(func() {
			for b.Ctx.Err() == nil {
				if err := l.Round(b.Ctx); err != nil {
					t.Error(err)
					return
				}
				var open int
				if conn, err := pgx.Connect(b.Ctx, b.DB.DSN()); err != nil {
					t.Error(err)
					return
				} else if err := errors.Join(conn.QueryRow(b.Ctx, "SELECT count(*) FROM cellquota.orders WHERE state = 'PENDING_PAYMENT'").Scan(&open), conn.Close(b.Ctx)); err != nil {
					t.Error(err)
					return
				}
				if open == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	if n := b.Count("ledger WHERE action = 'RELEASE'"); n != 1000 {
		t.Errorf("%d releases", n)
	}
	if n := b.Count("stock WHERE available = 1000 AND released = 1000 AND reserved = 0"); n != 1 {
		t.Error("the stock row does not have its units back")
	}
	observed := uint64(0)
	for _, reg := range regs {
		families, err := reg.Gather()
		b.Must(err)
		for _, f := range families {
			if f.GetName() == "cellquota_release_delay_seconds" {
				observed += f.GetMetric()[0].GetHistogram().GetSampleCount()
			}
		}
	}
	if observed != 1000 {
		t.Errorf("release_delay_seconds saw %d", observed)
	}
}

// TestThisProcessesClockDecidesNothing is K32.
func TestThisProcessesClockDecidesNothing(t *testing.T) {
	b := newBench(t, 1)
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		l, _ := b.loop(b.Store, &provider.Sandbox{}, clock.Offset(clock.System(), off))
		b.Must(l.Round(b.Ctx))
		if b.Count("orders WHERE state = 'PENDING_PAYMENT'") != 1 {
			t.Fatalf("closed by a clock that is off by %s", off)
		}
	}
	b.Advance(time.Minute)
	l, _ := b.loop(b.Store, &provider.Sandbox{}, clock.Offset(clock.System(), -10*time.Minute))
	b.Must(l.Round(b.Ctx))
	if b.Count("orders WHERE state = 'CLOSED'") != 1 {
		t.Fatal("not closed in its time")
	}
}

// silent is a channel that answers what it is told to, by payment id.
type silent map[ids.PaymentID]provider.Answer

func (s silent) Inquire(_ context.Context, _ ids.OrderID, p ids.PaymentID) (provider.Answer, error) {
	if a, ok := s[p]; ok {
		return a, nil
	}
	return provider.Answer{}, errors.New("no answer")
}

func (s silent) InquireOrder(context.Context, ids.OrderID) ([]provider.Found, error) {
	return nil, errors.New("no answer")
}

func (s silent) Refund(context.Context, provider.RefundOrder) (provider.Answer, error) {
	return provider.Answer{Status: provider.Unknown}, errors.New("no answer")
}

// TestTheChannelIsAsked: before an order with an open attempt is closed, and only then; what it says
// is applied like a callback; its silence is for a person.
func TestTheChannelIsAsked(t *testing.T) {
	b := newBench(t, 5)
	svc, err := payment.New(b.Store, payment.Config{AttemptGrace: 10 * time.Second}, slog.New(slog.DiscardHandler), nil)
	b.Must(err)
	ctx, cancel := context.WithCancel(b.Ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = svc.Run(ctx) }()
	defer func() { cancel(); <-done }()
	cheap, _ := reservation.ParseMoney("1.00", "EUR")
	channel := silent{
		"succeeded": {Status: provider.Succeeded, Amount: shardtest.Price}, "failed": {Status: provider.Failed}, "none": {Status: provider.None},
		"cheap": {Status: provider.Succeeded, Amount: cheap},
	}
	for i, p := range []ids.PaymentID{"succeeded", "failed", "none", "cheap", "silent"} {
		a, err := svc.Start(b.Ctx, b.order[i], ids.UserID(fmt.Sprint("u", i)), p)
		if err != nil || a.Total != shardtest.Price || a.State != shard.PaymentInitiated || a.ExpiresAt.IsZero() {
			t.Fatalf("%s: %+v, %v", p, a, err)
		}
	}
	l, reg := b.loop(b.Store, channel, clock.System())
	b.Advance(65 * time.Second)
	b.Must(l.Round(b.Ctx))
	if n, err := testutil.GatherAndCount(reg, "cellquota_payment_inquiries_total"); err != nil || n != 0 {
		t.Fatalf("asked before the attempts' deadline: %d, %v", n, err)
	}
	state := func(i int) string {
		var s string
		b.Must(b.Admin.QueryRow(b.Ctx, "SELECT o.state || '/' || r.state FROM cellquota.orders o JOIN cellquota.reservations r USING (reservation_id) WHERE order_id = $1", string(b.order[i])).Scan(&s))
		return s
	}
	b.Advance(5 * time.Second)
	b.Must(l.Round(b.Ctx))     // asks
	b.Advance(5 * time.Second) // a mismatch changes no order: it is due again when its asker's time is over
	b.Must(l.Round(b.Ctx))     // closes those whose attempts ended
	for i, want := range []string{"PAID/CONFIRMED", "CLOSED/RELEASED", "CLOSED/RELEASED", "CLOSED/RELEASED", "PENDING_PAYMENT/RESERVED"} {
		if got := state(i); got != want {
			t.Errorf("order %d is %s, want %s", i, got, want)
		}
	}
	for range 12 {
		b.Advance(time.Second)
		b.Must(l.Round(b.Ctx))
	}
	if got := state(4); got != "PENDING_PAYMENT/MANUAL_REVIEW" {
		t.Errorf("silence led to %s", got)
	}
	out, err := svc.Callback(b.Ctx, payment.Callback{Order: b.order[4], Payment: "silent", Amount: shardtest.Price, Status: payment.Failed})
	if err != nil || out.Payment != shard.PaymentFailed {
		t.Fatalf("%+v, %v", out, err)
	}
	b.Must(l.Round(b.Ctx))
	if got := state(4); got != "CLOSED/RELEASED" {
		t.Errorf("the channel's late no led to %s", got)
	}
	if _, err := svc.Cancel(b.Ctx, b.order[0], "u0"); !errors.Is(err, reservation.ErrOrderPaid) {
		t.Error(err)
	}
}

// TestRunGoesOn: a round that fails does not end the loop.
func TestRunGoesOn(t *testing.T) {
	b := newBench(t, 1)
	b.Store.DropWriter()
	clk := clock.NewManual(time.Now())
	l, _ := b.loop(b.Store, &provider.Sandbox{}, clk)
	ctx, cancel := context.WithCancel(b.Ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	step := func() { b.Must(clk.BlockUntil(b.Ctx, 1)); clk.Advance(time.Second) }
	step()
	b.Must(clk.BlockUntil(b.Ctx, 1))
	b.Advance(time.Minute)
	b.Store.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	testkit.Eventually(t, 10*time.Second, func() error {
		step()
		if b.Count("orders WHERE state = 'CLOSED'") != 1 {
			return errors.New("not closed")
		}
		return nil
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestACancelledCampaignClosesAtOnce: its unpaid orders before their time, once each; an attempt under
// way is asked about first, and the channel's word decides.
func TestACancelledCampaignClosesAtOnce(t *testing.T) {
	b := newBench(t, 5)
	start := func(i int, payment ids.PaymentID) {
		res, err := b.Store.StepOrders(b.Ctx, 10*time.Second, []shard.Step{{Kind: shard.StepStart, Order: b.order[i], User: ids.UserID(fmt.Sprint("u", i)), Payment: payment}})
		b.Must(err)
		b.Must(res[0].Err)
	}
	start(0, "paid")
	start(1, "failed")
	start(2, "doubt")
	b.Cancel()
	channel := silent{"paid": {Status: provider.Succeeded, Amount: shardtest.Price}, "failed": {Status: provider.None}}
	reg := prometheus.NewRegistry()
	l, err := closer.New(b.Store, channel, closer.Config{
		Batch: 2, Waits: shard.CloseWaits{Attempt: 10 * time.Second}, Cancelled: func() []ids.CampaignID { return []ids.CampaignID{shardtest.Campaign} },
	}, clock.System(), slog.New(slog.DiscardHandler), reg)
	b.Must(err)
	for range 3 {
		b.Advance(time.Second)
		b.Must(l.Round(b.Ctx))
	}
	for state, want := range map[string]int{"CLOSED": 3, "PAID": 1, "PENDING_PAYMENT": 1} {
		if n := b.Count("orders WHERE state = '" + state + "'"); n != want {
			t.Errorf("%d orders are %s, want %d", n, state, want)
		}
	}
	if n := b.Count("orders WHERE reason = 'CANCELLED' AND closed_at < expires_at"); n != 3 {
		t.Errorf("%d were closed for it before their time", n)
	}
	b.Advance(2 * time.Minute) // beyond the attempt's deadline: a person
	b.Must(b.Store.Heartbeat(b.Ctx))
	b.Must(l.Round(b.Ctx))
	if n := b.Count("reservations WHERE state = 'MANUAL_REVIEW'"); n != 1 {
		t.Errorf("%d in review", n)
	}
	if n := b.Count("ledger WHERE action = 'RELEASE'"); n != 3 {
		t.Errorf("%d releases", n)
	}
}

// slow is a channel that takes two seconds of the shard's clock for every question, and has no answer.
type slow struct {
	silent
	b  *bench
	mu sync.Mutex
	of map[ids.PaymentID]int
}

func (s *slow) Inquire(ctx context.Context, o ids.OrderID, p ids.PaymentID) (provider.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[p]++
	s.b.Advance(2 * time.Second)
	return s.silent.Inquire(ctx, o, p)
}

// TestASilentChannelHoldsUpOneBatch: orders of a cancelled campaign whose attempts nobody answers for are
// asked about a batch in a round, each in its turn, and keep no other from being closed.
func TestASilentChannelHoldsUpOneBatch(t *testing.T) {
	b := newBench(t, 6)
	user := map[ids.OrderID]ids.UserID{}
	for i, o := range b.order {
		user[o] = ids.UserID(fmt.Sprint("u", i))
	}
	slices.Sort(b.order) // those with an attempt are the first by id
	for i, o := range b.order[:4] {
		res, err := b.Store.StepOrders(b.Ctx, 10*time.Second, []shard.Step{{Kind: shard.StepStart, Order: o, User: user[o], Payment: ids.PaymentID(fmt.Sprint("p", i))}})
		b.Must(err)
		b.Must(res[0].Err)
	}
	b.Cancel()
	b.Advance(2 * time.Second)
	channel := &slow{b: b, of: map[ids.PaymentID]int{}}
	l, err := closer.New(b.Store, channel, closer.Config{
		Batch: 2, Waits: shard.CloseWaits{Attempt: 10 * time.Second}, Cancelled: func() []ids.CampaignID { return []ids.CampaignID{shardtest.Campaign} },
	}, clock.System(), slog.New(slog.DiscardHandler), nil)
	b.Must(err)
	b.Must(l.Round(b.Ctx))
	if n := b.Count("orders WHERE state = 'CLOSED'"); n != 2 {
		t.Errorf("%d were closed, want the two without an attempt", n)
	}
	if len(channel.of) != 2 {
		t.Errorf("one round asked about %v", channel.of)
	}
	b.Must(l.Round(b.Ctx))
	for i := range 4 {
		if p := ids.PaymentID(fmt.Sprint("p", i)); channel.of[p] != 1 {
			t.Errorf("two rounds asked %d times about %s", channel.of[p], p)
		}
	}
}

// TestEachOpenAttemptIsAsked: one that stays UNKNOWN keeps none of its order's others from being asked
// about, however many there are, and silence is for a person only after each was.
func TestEachOpenAttemptIsAsked(t *testing.T) {
	b := newBench(t, 2)
	for i, attempts := range []int{6, 6} {
		for n := range attempts {
			res, err := b.Store.StepOrders(b.Ctx, 10*time.Second, []shard.Step{{
				Kind: shard.StepStart, Order: b.order[i], User: ids.UserID(fmt.Sprint("u", i)), Payment: ids.PaymentID(fmt.Sprint("o", i, "p", n)),
			}})
			b.Must(err)
			b.Must(res[0].Err)
			b.Advance(time.Millisecond)
		}
	}
	channel := &counting{silent: silent{"o0p5": {Status: provider.Succeeded, Amount: shardtest.Price}}, of: map[ids.PaymentID]int{}}
	l, _ := b.loop(b.Store, channel, clock.System())
	b.Advance(90 * time.Second) // beyond the grace of every attempt: the first silence could be for a person
	b.Must(b.Store.Heartbeat(b.Ctx))
	b.Must(l.Round(b.Ctx))
	if n := b.Count("reservations WHERE state = 'MANUAL_REVIEW'"); n != 0 {
		t.Errorf("%d in review, with attempts that nobody asked about", n)
	}
	b.Advance(2 * time.Second)
	b.Must(l.Round(b.Ctx))
	for state, want := range map[string]int{"CONFIRMED": 1, "MANUAL_REVIEW": 1} {
		if n := b.Count("reservations WHERE state = '" + state + "'"); n != want {
			t.Errorf("%d are %s, want %d", n, state, want)
		}
	}
	for i := range 2 {
		for n := range 6 {
			if p := ids.PaymentID(fmt.Sprint("o", i, "p", n)); channel.of[p] == 0 {
				t.Errorf("%s was never asked about", p)
			}
		}
	}
}

// counting is a channel that counts its questions.
type counting struct {
	silent
	mu sync.Mutex
	of map[ids.PaymentID]int
}

func (c *counting) Inquire(ctx context.Context, o ids.OrderID, p ids.PaymentID) (provider.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[p]++
	return c.silent.Inquire(ctx, o, p)
}

// hanging is a channel that says nothing until the question is given up.
type hanging struct {
	silent
	asked chan struct{}
}

func (h *hanging) Inquire(ctx context.Context, _ ids.OrderID, _ ids.PaymentID) (provider.Answer, error) {
	select {
	case h.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return provider.Answer{}, ctx.Err()
}

// TestASilentChannelDelaysNoClosing: while questions about many attempts hang, orders that become due and
// have no attempt are closed within a moment, however small the batch.
func TestASilentChannelDelaysNoClosing(t *testing.T) {
	b := newBench(t, 50)
	for i := range 40 {
		res, err := b.Store.StepOrders(b.Ctx, 10*time.Second, []shard.Step{{Kind: shard.StepStart, Order: b.order[i], User: ids.UserID(fmt.Sprint("u", i)), Payment: "p"}})
		b.Must(err)
		b.Must(res[0].Err)
	}
	free := make([]string, 0, 10)
	for _, o := range b.order[40:] {
		free = append(free, string(o))
	}
	_, err := b.Admin.Exec(b.Ctx, "UPDATE cellquota.orders SET expires_at = expires_at + interval '30 seconds', close_after = close_after + interval '30 seconds' WHERE order_id = ANY($1)", free)
	b.Must(err)
	channel := &hanging{asked: make(chan struct{}, 1)}
	l, err := closer.New(b.Store, channel, closer.Config{Interval: 10 * time.Millisecond, Batch: 10, Waits: shard.CloseWaits{Attempt: 10 * time.Second}}, clock.System(), slog.New(slog.DiscardHandler), nil)
	b.Must(err)
	ctx, cancel := context.WithCancel(b.Ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	defer func() { cancel(); <-done }()
	b.Advance(75 * time.Second)
	<-channel.asked
	b.Advance(20 * time.Second)
	begin := clock.System().Now()
	testkit.Eventually(t, 2*time.Second, func() error {
		if n := b.Count("orders WHERE state = 'CLOSED'"); n != 10 {
			return fmt.Errorf("%d of 10 are closed", n)
		}
		return nil
	})
	t.Logf("closed %s after they were due", clock.System().Now().Sub(begin))
}
