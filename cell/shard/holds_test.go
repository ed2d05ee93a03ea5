package shard_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func holdsAtMost(user, device int32) func(*cellquotav1.CampaignRules) {
	return func(r *cellquotav1.CampaignRules) {
		r.Spec.Holds = &cellquotav1.HoldRules{MaxUnpaidPerUser: user, MaxUnpaidPerDevice: device}
	}
}

func twoSKUs(r *cellquotav1.CampaignRules) {
	r.Spec.Skus = append(r.Spec.Skus, rules("case").Spec.Skus...)
}

// TestHoldsOfAUser: unpaid orders of a user are counted over the campaign's SKUs; one above the bound is
// rejected with its units and place given back, and paid or closed ones count no more.
func TestHoldsOfAUser(t *testing.T) {
	b := newBench(t)
	b.sell(5, twoSKUs, holdsAtMost(1, 0))
	b.grant("case", 5)
	first := b.order("u")
	b.raise("case")
	other := func(request string) shard.Message {
		return b.message("u", func(m *shard.Message) { m.SKU, m.Request = "case", ids.RequestID(request) })
	}
	held := other("r1")
	got := b.apply(held, b.message("v", func(m *shard.Message) { m.SKU = "case" }))
	if got[0].Reason != reservation.TooManyUnpaid || got[1].Outcome != shard.Ordered {
		t.Fatalf("%+v", got)
	}
	e := b.effects()["settle-"+string(held.Reservation)]
	if e.GetStockDelta() != 1 || e.GetReason() != cellquotav1.Reason_REASON_TOO_MANY_UNPAID || !e.GetUnpaidHold() {
		t.Errorf("effect %v", e)
	}
	if s := b.stock("case"); s.Available != 4 || s.Reserved != 1 {
		t.Errorf("stock %+v", s)
	}
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: first, Payment: "p"})
	if d := b.apply(other("r2")); d[0].Outcome != shard.Ordered {
		t.Errorf("after paying: %+v", d)
	}
	b.invariants()
}

// TestHoldsOfADevice: within one batch and over batches; without a device nobody is counted.
func TestHoldsOfADevice(t *testing.T) {
	b := newBench(t)
	b.sell(10, holdsAtMost(0, 2))
	from := func(user, device string) shard.Message {
		return b.message(user, func(m *shard.Message) { m.DeviceID = device })
	}
	got := b.apply(from("a", "d"), from("b", "d"), from("c", "d"), from("e", "other"), from("f", ""), from("g", ""), from("h", ""))
	for i, want := range []reservation.Reason{"", "", reservation.TooManyUnpaid, "", "", "", ""} {
		if got[i].Reason != want {
			t.Errorf("message %d: %+v, want %q", i, got[i], want)
		}
	}
	if d := b.apply(from("i", "d")); d[0].Reason != reservation.TooManyUnpaid {
		t.Errorf("a later batch: %+v", d)
	}
	b.step(shard.Step{Kind: shard.StepCancel, Order: b.message("a").Reservation.Order(), User: "a"})
	if d := b.apply(from("k", "d")); d[0].Outcome != shard.Ordered {
		t.Errorf("after a cancel: %+v", d)
	}
	b.invariants()
}

// TestHoldsOfManyPartitions: orders of one device on two SKUs' partitions at once never pass the bound,
// and nobody deadlocks (K54, K85).
func TestHoldsOfManyPartitions(t *testing.T) {
	b := newBench(t)
	b.sell(400, twoSKUs, holdsAtMost(0, 3))
	build := b.build
	b.grant("case", 400)
	b.raise("case")
	var ordered atomic.Int32
	parallel(b, 8, func(p int32) error {
		if err := b.store.StartPosition(b.ctx, shard.Position{Topic: topic, Partition: p, TopicID: topicID, Epoch: -1}); err != nil {
			return err
		}
		for round := range 8 {
			from, _, err := b.store.ReadPosition(b.ctx, topic, p)
			if err != nil {
				return err
			}
			m := buyer(int(p), round, []ids.SKUID{phone, "case"}[p%2], build)
			m.DeviceID, m.Offset = fmt.Sprint("device-", round%2), from.Next
			res, err := b.store.ApplyOrders(b.ctx, shard.Batch{From: from, To: from.Next + 1, Messages: []shard.Message{m}})
			if err != nil {
				return err
			}
			if res.Decisions[0].Outcome == shard.Ordered {
				ordered.Add(1)
			}
		}
		return nil
	})
	if ordered.Load() != 6 {
		t.Errorf("%d orders of two devices that may hold three each", ordered.Load())
	}
	if n := one[int](b, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	b.invariants()
}
