package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// crowd is everything at once on three SKUs: consumers of four partitions, payments and cancels,
// closers, grants and returns. It ends when every message has its outcome.
type crowd struct {
	*bench
	skus    []ids.SKUID
	mu      sync.Mutex
	orders  []ids.OrderID
	done    chan struct{}
	helpers sync.WaitGroup
}

func newCrowd(t *testing.T) *crowd {
	b := newBench(t)
	c := &crowd{bench: b, skus: []ids.SKUID{phone, "case", "cable"}, done: make(chan struct{})}
	r := rules(c.skus...)
	r.Spec.PurchaseScope = cellquotav1.PurchaseScope_PURCHASE_SCOPE_CAMPAIGN // buyers meet across SKUs and partitions
	r.Spec.ReservationTtl = durationpb.New(50 * time.Millisecond)
	b.install(r)
	for _, sku := range c.skus {
		b.grant(sku, 120)
	}
	b.raise(shard.WholeCampaign)
	b.must(b.store.Heartbeat(b.ctx))
	return c
}

const (
	crowdPartitions = 4
	crowdBatches    = 25
	crowdSize       = 12
)

// consume delivers partition p's batches, each until it is applied.
func (c *crowd) consume(p int32) {
	rng := rand.New(rand.NewPCG(uint64(p), 7))
	at := shard.Position{Topic: topic, Partition: p, TopicID: topicID}
	c.again(func() error { return c.store.StartPosition(c.ctx, at) })
	for i := range crowdBatches {
		b := shard.Batch{From: at, To: at.Next + crowdSize}
		for j, u := range rng.Perm(500)[:crowdSize] {
			user := ids.UserID(fmt.Sprint("u", u))
			m := shard.Message{Offset: at.Next + int64(j), Admission: reservation.Admission{
				Request: ids.RequestID(fmt.Sprintf("r-%d-%d", p, i)), Campaign: campaign, SKU: c.skus[rng.IntN(3)], User: user, Quantity: 1 + int32(rng.IntN(2)),
				Build: c.build, Fingerprint: "f", Price: price, AdmittedAt: time.Now(),
			}}
			m.Reservation = ids.DeriveReservation(campaign, m.SKU, user, m.Request, cellID, c.build)
			b.Messages = append(b.Messages, m)
		}
		c.again(func() error {
			res, err := c.store.ApplyOrders(c.ctx, b)
			if errors.Is(err, shard.ErrPositionLost) { // its answer was lost, and it had committed
				return nil
			}
			for k, d := range res.Decisions {
				if d.Outcome == shard.Ordered {
					c.mu.Lock()
					c.orders = append(c.orders, b.Messages[k].Reservation.Order())
					c.mu.Unlock()
				}
			}
			return err
		})
		at.Next = b.To
	}
}

// again repeats what may be repeated.
func (c *crowd) again(verb func() error) {
	for c.ctx.Err() == nil {
		err := verb()
		if err == nil {
			return
		}
		if !shard.SafeToRetry(err) && !errors.Is(err, shard.ErrUnknownCommit) {
			c.t.Error(err)
			return
		}
	}
}

// help runs a helper again and again until the consumers are done.
func (c *crowd) help(verb func(*rand.Rand) error) {
	c.helpers.Add(1)
	go func() {
		defer c.helpers.Done()
		rng := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-c.done:
				return
			default:
				c.again(func() error { return verb(rng) })
			}
		}
	}()
}

func (c *crowd) pick(rng *rand.Rand, n int) []ids.OrderID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ids.OrderID
	seen := map[ids.OrderID]bool{}
	for range min(n, len(c.orders)) {
		if o := c.orders[rng.IntN(len(c.orders))]; !seen[o] {
			seen[o] = true
			out = append(out, o)
		}
	}
	return out
}

func (c *crowd) run() {
	c.t.Helper()
	c.help(func(rng *rand.Rand) error {
		var steps []shard.Step
		for _, o := range c.pick(rng, 10) {
			kind := []shard.StepKind{shard.StepSucceeded, shard.StepFailed, shard.StepPending, shard.StepCancel}[rng.IntN(4)]
			steps = append(steps, shard.Step{Kind: kind, Order: o, User: "nobody", Payment: ids.PaymentID(fmt.Sprint("p", rng.IntN(2)))})
		}
		_, err := c.store.StepOrders(c.ctx, 10*time.Millisecond, steps)
		return err
	})
	for range 2 {
		c.help(func(*rand.Rand) error {
			_, _, err := c.store.CloseDue(c.ctx, 20, shard.CloseWaits{Attempt: 10 * time.Millisecond})
			return err
		})
	}
	c.help(func(rng *rand.Rand) error {
		sku := c.skus[rng.IntN(3)]
		all, err := c.store.Stocks(c.ctx)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.SKU == sku {
				kind := []shard.AdjustmentKind{shard.Grant, shard.Return}[rng.IntN(2)]
				_, err = c.store.ApplyAdjustment(c.ctx, shard.Adjustment{
					ID: fmt.Sprint("x-", sku, "-", s.LastNumber+1), Campaign: campaign, SKU: sku, FenceVersion: 1, Number: s.LastNumber + 1, Kind: kind, Units: 2, TermCount: 1, TermID: "term-1",
				})
			}
		}
		return err
	})
	c.help(func(*rand.Rand) error {
		rows, err := c.store.ClaimOutbox(c.ctx, "MIRROR", 50, "o", time.Second)
		if err != nil {
			return err
		}
		return c.store.MarkPublished(c.ctx, "o", rowIDs(rows))
	})
	var consumers sync.WaitGroup
	for p := range int32(crowdPartitions) {
		consumers.Go(func() { c.consume(p) })
	}
	consumers.Wait()
	close(c.done)
	c.helpers.Wait()
	c.invariants()
	if n := one[int](c.bench, "SELECT count(*) FROM cellquota.inbox"); n != crowdPartitions*crowdBatches*crowdSize {
		c.t.Errorf("%d of %d messages have an outcome", n, crowdPartitions*crowdBatches*crowdSize)
	}
}

// TestCrowd is K54: nobody deadlocks, because locks are taken in one order.
func TestCrowd(t *testing.T) {
	c := newCrowd(t)
	c.run()
	c.exec(c.admin, "SELECT pg_stat_force_next_flush()")
	if n := one[int](c.bench, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d orders: %s", one[int](c.bench, "SELECT count(*) FROM cellquota.orders"),
		one[string](c.bench, "SELECT string_agg(state || ' ' || n, ', ') FROM (SELECT state, count(*) n FROM cellquota.orders GROUP BY state) x"))
}

// TestCrowdUnderFire is K67 and K74: the same while backends are ended at random: every message has
// its outcome once, and the books add up.
func TestCrowdUnderFire(t *testing.T) {
	c := newCrowd(t)
	shooter := c.db.Conn(t)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-c.done:
				return
			default:
				_, err := shooter.Exec(c.ctx, `SELECT pg_terminate_backend(pid), pg_sleep(0.01) FROM pg_stat_activity
					WHERE usename = 'cellquota_app' AND datname = current_database() ORDER BY random() LIMIT 1`)
				if err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	c.run()
	<-stopped
}
