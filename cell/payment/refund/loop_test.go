package refund_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/payment/refund"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// channel is a payment channel that keeps books: it carries a refund id out once, and says what it is
// told to say.
type channel struct {
	provider.Sandbox
	mu   sync.Mutex
	done map[string]int // refund id → asks after it was carried out, from 1
	say  func(want provider.RefundOrder) (provider.Status, error)
	part map[string]reservation.Money // refund id → what it names as refunded
}

func (c *channel) Refund(_ context.Context, want provider.RefundOrder) (provider.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.say != nil {
		if status, err := c.say(want); status != provider.Refunded || err != nil {
			return provider.Answer{Status: status}, err
		}
	}
	if c.done == nil {
		c.done = map[string]int{}
	}
	c.done[want.ID]++
	return provider.Answer{Status: provider.Refunded, Amount: c.part[want.ID]}, nil
}

type bench struct {
	*shardtest.Shard
	reg *prometheus.Registry
}

func (b *bench) loop(store refund.Store, c provider.Provider, cancelled ...ids.CampaignID) *refund.Loop {
	b.T.Helper()
	b.reg = prometheus.NewRegistry()
	l, err := refund.New(store, c, refund.Config{
		Batch: 7, Pace: shard.RefundPace{First: time.Second, Longest: 8 * time.Second}, AttemptGrace: time.Minute,
		Cancelled: func() []ids.CampaignID { return cancelled },
	}, clock.System(), slog.New(slog.DiscardHandler), b.reg)
	b.Must(err)
	return l
}

func (b *bench) want(o ids.OrderID, id string) {
	b.T.Helper()
	res, err := b.Store.StepOrders(b.Ctx, time.Minute, []shard.Step{{
		Kind: shard.StepRefund, Order: o, RefundID: id, Ask: shard.Asked{Cause: shard.RefundRequested, Actor: "sre", Reason: "asked"},
	}})
	b.Must(err)
	b.Must(res[0].Err)
}

func restock(r *pb.CampaignRules) { r.Spec.RefundRule = pb.RefundRule_REFUND_RULE_RESTOCK }

// books checks that the shard adds up, and that so many units are sold.
func (b *bench) books(sold int) {
	b.T.Helper()
	if n := b.Count("stock WHERE granted = available + reserved + confirmed"); n != 1 {
		b.T.Error("I2 is broken")
	}
	var confirmed int
	b.Must(b.Admin.QueryRow(b.Ctx, "SELECT confirmed FROM cellquota.stock").Scan(&confirmed))
	if confirmed != sold {
		b.T.Errorf("%d units are sold, want %d", confirmed, sold)
	}
}

// TestUntilTheChannelSaysSo: no answer, strange answers, a refusal and a promise are asked again, ever
// more seldom and visibly; then the refund ends once.
func TestUntilTheChannelSaysSo(t *testing.T) {
	b := &bench{Shard: shardtest.New(t, 1, restock)}
	b.Pay(b.Orders[0])
	b.want(b.Orders[0], "rf")
	words := []provider.Status{provider.Unknown, provider.Refused, provider.Pending, provider.Unknown, provider.Unknown, provider.Refunded}
	asked := 0
	c := &channel{say: func(want provider.RefundOrder) (provider.Status, error) {
		if want.ID != "rf" || want.Amount != shardtest.Price || want.Payment != "p" {
			t.Errorf("asked for %+v", want)
		}
		asked++
		if asked == 1 {
			return "", errors.New("no answer")
		}
		return words[asked-1], nil
	}}
	l := b.loop(b.Store, c)
	for i, pause := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
		if pause > 0 {
			b.Advance(pause - time.Millisecond)
			b.Must(l.Round(b.Ctx))
			if asked != i {
				t.Fatalf("asked %d times before the pause of %s was over", asked, pause)
			}
			b.Advance(time.Millisecond)
		}
		b.Must(l.Round(b.Ctx))
		if asked != i+1 {
			t.Fatalf("asked %d times, want %d", asked, i+1)
		}
		if i < 5 && (b.Count("refunds WHERE state = 'PENDING' AND answer = '"+string(words[i])+"'") != 1 || gauge(t, b.reg, "cellquota_refunds_pending") != 1) {
			t.Errorf("after %s it is not visible", words[i])
		}
	}
	if b.Count("payments WHERE state = 'REFUNDED' AND refund_id = 'rf'") != 1 || b.Count("ledger WHERE action = 'RESTOCK'") != 1 {
		t.Error("not refunded once")
	}
	if gauge(t, b.reg, "cellquota_refunds_pending") != 0 || gauge(t, b.reg, "cellquota_refund_oldest_seconds") != 0 {
		t.Error("still visible")
	}
	if n, err := testutil.GatherAndCount(b.reg, "cellquota_refund_asks_total"); err != nil || n != 4 {
		t.Errorf("%d kinds of answers counted, %v", n, err)
	}
	b.books(0)
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// dying is a store whose process dies at the nth call of a kind: before it, or behind its commit.
type dying struct {
	refund.Store
	at     string
	behind bool
}

var errDied = errors.New("the process died here")

func (d *dying) die(at string, do func() error) error {
	if d.at != at {
		return do()
	}
	if d.behind {
		if err := do(); err != nil {
			return err
		}
	}
	return errDied
}

func (d *dying) ClaimRefunds(ctx context.Context, limit int, pace shard.RefundPace) (out []shard.DueRefund, err error) {
	err = d.die("claim", func() error { out, err = d.Store.ClaimRefunds(ctx, limit, pace); return err })
	return out, err
}

func (d *dying) StepOrders(ctx context.Context, grace time.Duration, steps []shard.Step) (out []shard.StepResult, err error) {
	at := "end"
	if steps[0].Kind == shard.StepRefund {
		at = "want"
	}
	err = d.die(at, func() error { out, err = d.Store.StepOrders(ctx, grace, steps); return err })
	return out, err
}

// TestACrashBetweenAnyTwoSteps: wanted, claimed, asked, ended: whoever dies there, the next process
// finishes it; the channel is asked for one refund under one id, and a unit returns at most once.
func TestACrashBetweenAnyTwoSteps(t *testing.T) {
	for _, at := range []string{"want", "claim", "ask", "end"} {
		for _, behind := range []bool{false, true} {
			b := &bench{Shard: shardtest.New(t, 1, restock)}
			b.Pay(b.Orders[0])
			var cancelled []ids.CampaignID
			if at == "want" { // by the sweep of a cancelled campaign
				b.Cancel()
				cancelled = []ids.CampaignID{shardtest.Campaign}
			} else {
				b.want(b.Orders[0], "rf")
			}
			c := &channel{}
			first := b.loop(&dying{Store: b.Store, at: at, behind: behind}, c, cancelled...)
			ctx, cancel := context.WithCancel(b.Ctx)
			if at == "ask" { // dies with the question on its way: not answered, or answered to nobody
				c.say = func(provider.RefundOrder) (provider.Status, error) {
					cancel()
					if behind {
						return provider.Refunded, nil
					}
					return provider.Unknown, errors.New("cut")
				}
			}
			if err := first.Round(ctx); err == nil {
				t.Fatalf("%s: did not die", at)
			}
			cancel()
			c.say = nil
			next := b.loop(b.Open(), c, cancelled...)
			for range 2 {
				b.Advance(10 * time.Second)
				b.Must(next.Round(b.Ctx))
			}
			if len(c.done) != 1 || b.Count("refunds WHERE state = 'REFUNDED'") != 1 || b.Count("payments WHERE state = 'REFUNDED'") != 1 {
				t.Errorf("died at %s, behind %v: the channel did %v", at, behind, c.done)
			}
			if n := b.Count("outbox WHERE event_type = 'refund-requested'"); n != 1 {
				t.Errorf("died at %s, behind %v: %d events", at, behind, n)
			}
			if at == "want" {
				b.books(1) // cancelled: nothing returns
			} else {
				b.books(0)
			}
		}
	}
}

// damaged is a store where the paid orders of some campaigns cannot be read.
type damaged struct {
	refund.Store
	err  error
	read map[ids.CampaignID]int
}

func (d *damaged) PaidOrders(ctx context.Context, campaign ids.CampaignID, after shard.PaidOrder, limit int) ([]shard.PaidOrder, error) {
	d.read[campaign]++
	if campaign != shardtest.Campaign {
		return nil, d.err
	}
	return d.Store.PaidOrders(ctx, campaign, after, limit)
}

// TestASweepThatFailsHoldsNothingUp: a cancelled campaign that cannot be swept is in the round's error;
// the campaigns behind it are swept, and what is due is asked and ended, round after round.
func TestASweepThatFailsHoldsNothingUp(t *testing.T) {
	b := &bench{Shard: shardtest.New(t, 2, restock)}
	b.Pay(b.Orders[0])
	b.Pay(b.Orders[1])
	b.want(b.Orders[0], "rf")
	store, c := &damaged{Store: b.Store, err: errors.New("damaged"), read: map[ids.CampaignID]int{}}, &channel{}
	l := b.loop(store, c, "other", shardtest.Campaign)
	for range 2 {
		if err := l.Round(b.Ctx); !errors.Is(err, store.err) {
			t.Fatalf("the round's error: %v", err)
		}
	}
	if c.done["rf"] != 1 || b.Count("refunds WHERE state = 'REFUNDED'") != 2 || store.read["other"] != 2 {
		t.Errorf("the channel did %v, %d ended, read %v", c.done, b.Count("refunds WHERE state = 'REFUNDED'"), store.read)
	}
	store.err = shard.ErrBusy // passes, and is everybody's: the others are not read either
	c.say = func(provider.RefundOrder) (provider.Status, error) { return provider.Unknown, nil }
	clear(store.read)
	if err := l.Round(b.Ctx); !errors.Is(err, shard.ErrBusy) || store.read[shardtest.Campaign] != 0 {
		t.Errorf("%v, read %v", err, store.read)
	}
	b.books(0)
}

// TestSweepsMeet: three processes sweep a cancelled campaign at once, one order is refunded by hand,
// one is paid after the sweep: each is refunded exactly once, and no unit returns.
func TestSweepsMeet(t *testing.T) {
	b := &bench{Shard: shardtest.New(t, 41, restock)}
	b.Pay(b.Orders[:40]...)
	b.want(b.Orders[3], "by-hand")
	b.Cancel()
	c := &channel{}
	var wg sync.WaitGroup
	var loops []*refund.Loop
	for range 3 {
		loops = append(loops, b.loop(b.Open(), c, shardtest.Campaign))
	}
	for _, l := range loops {
		wg.Go(func() {
			for range 10 {
				if err := l.Round(b.Ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := b.Count("refunds WHERE state = 'REFUNDED'"); n != 40 {
		t.Fatalf("%d refunds have ended", n)
	}
	b.Pay(b.Orders[40])
	later := b.loop(b.Open(), c, shardtest.Campaign) // a process that begins the list anew
	for range 10 {
		b.Must(later.Round(b.Ctx))
	}
	if len(c.done) != 41 || b.Count("refunds WHERE state = 'REFUNDED' AND NOT restocked") != 41 {
		t.Errorf("the channel carried out %d", len(c.done))
	}
	if n := b.Count("refunds WHERE cause = 'CAMPAIGN_CANCELLED' AND refund_id = 'cancel-' || order_id"); n != 40 {
		t.Errorf("%d under derived ids", n)
	}
	if c.done["by-hand"] == 0 || c.done[refund.CancelledRefundID(b.Orders[3])] != 0 {
		t.Error("what was refunded by hand was refunded again")
	}
	b.books(41)
}

// TestAPartIsNotTheWhole: a channel that says how much it gave back, and that it was less, is asked for the
// rest under another id; no part returns a unit. More than was asked for, or another currency, ends nothing.
func TestAPartIsNotTheWhole(t *testing.T) {
	b := &bench{Shard: shardtest.New(t, 1, restock)}
	b.Pay(b.Orders[0])
	b.want(b.Orders[0], "rf")
	some := shardtest.Price
	some.Tenthousandths = 30_000
	var rest []provider.RefundOrder
	c := &channel{part: map[string]reservation.Money{"rf": some}}
	c.say = func(want provider.RefundOrder) (provider.Status, error) {
		if want.ID != "rf" {
			rest = append(rest, want)
		}
		return provider.Refunded, nil
	}
	l := b.loop(b.Store, c)
	b.Must(l.Round(b.Ctx))
	var state, left string
	row := "SELECT state, (SELECT amount::text FROM cellquota.refunds WHERE state = 'PENDING') FROM cellquota.payments"
	b.Must(b.Admin.QueryRow(b.Ctx, row).Scan(&state, &left))
	if state != "REFUND_PENDING" || left != "7.0000" || len(rest) != 0 {
		t.Fatalf("after 3 of 10: %s, %s are left, asked %v", state, left, rest)
	}
	for _, wrong := range []reservation.Money{shardtest.Price, {Tenthousandths: 70_000, Currency: "USD"}} {
		c.part = map[string]reservation.Money{}
		c.say = func(want provider.RefundOrder) (provider.Status, error) {
			rest, c.part[want.ID] = append(rest, want), wrong
			return provider.Refunded, nil
		}
		b.Advance(time.Minute)
		b.Must(l.Round(b.Ctx))
		if n := b.Count("refunds WHERE state = 'PENDING' AND answer = 'REFUNDED'"); n != 1 {
			t.Fatalf("%v ended the rest, or nobody sees what the channel says", wrong)
		}
	}
	if n := b.Count("payment_refusals"); n != 2 {
		t.Errorf("%d answers that do not fit are recorded, want 2", n)
	}
	c.part, c.say = nil, nil
	b.Advance(time.Minute)
	b.Must(l.Round(b.Ctx))
	if rest[0].Amount.Tenthousandths != 70_000 || rest[0].ID == "rf" || rest[0].ID != rest[len(rest)-1].ID {
		t.Errorf("asked %+v for the rest", rest)
	}
	if n := b.Count("payments WHERE state = 'REFUNDED'"); n != 1 || b.Count("refunds WHERE state = 'PENDING'") != 0 {
		t.Error("the refund did not end")
	}
	b.books(1)
}
