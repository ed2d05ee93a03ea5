package shard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// TestK43UnreadableRulesStopNoOthers: after a restart, one campaign's rules in the shard cannot be read.
// Orders of the others are made, messages of its own name the campaign as their data's fault, due orders
// of both are closed and paid in one transaction, what needs the rules waits, and overwriting cures it.
func TestK43UnreadableRulesStopNoOthers(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(5, shortTTL, longWindow, restocks)
	b.must(b.store.Heartbeat(b.ctx))
	bad := rules(phone)
	longWindow(bad)
	shortTTL(bad)
	bad.Spec.CampaignId = "damaged"
	b.install(bad)
	a := b.numbered(phone, shard.Grant, 5)
	a.ID, a.Campaign, a.Number = "g-damaged", "damaged", 1
	_, err := b.store.ApplyAdjustment(b.ctx, a)
	b.must(err)
	m, err := b.store.MintBuild(b.ctx, "damaged", string(phone), "test", time.Second)
	b.must(err)
	b.must(b.store.RaiseBuild(b.ctx, "damaged", string(phone), m.Build))
	theirs := func(user string) shard.Message {
		return b.message(user, func(x *shard.Message) { x.Campaign, x.Build = "damaged", m.Build })
	}
	paid, due, own := theirs("paid"), theirs("due"), b.message("own")
	b.apply(paid, due, own)
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: paid.Reservation.Order(), Payment: "p"})
	b.exec(b.admin, "UPDATE cellquota.campaigns SET rules = '\\x0a7f01' WHERE campaign_id = 'damaged'")

	b.store, b.reg = b.open(shard.Config{}, nil) // the restart: nothing is kept
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	if _, err := b.store.Campaigns(b.ctx); err != nil || metricValue(t, b.reg, "cellquota_rules_unreadable") != 1 {
		t.Errorf("no metric: %v", err)
	}
	batch := b.batch(theirs("x"), b.message("y"))
	if _, err := b.store.ApplyOrders(b.ctx, batch); !errors.Is(err, shard.ErrBadData) {
		t.Fatalf("a batch with a message of the campaign: %v", err)
	}
	one := batch
	one.Messages, one.To = batch.Messages[:1], batch.Messages[1].Offset
	park := shard.Parking{Offset: one.Messages[0].Offset, ErrorClass: "DATA", Value: []byte("x"), Message: &one.Messages[0]}
	b.must(b.store.ApplyParking(b.ctx, one.From, one.To, 0, park))
	if d := b.apply(batch.Messages[1]); d[0].Outcome != shard.Ordered {
		t.Errorf("the other campaign's message: %+v", d)
	}
	start := shard.Step{Kind: shard.StepStart, Order: due.Reservation.Order(), User: "due", Payment: "q"}
	refund := shard.Step{Kind: shard.StepRefund, Order: paid.Reservation.Order(), RefundID: "rf", Ask: shard.Asked{Cause: shard.RefundRequested}}
	for _, s := range []shard.Step{start, refund} {
		if r := b.step(s); !errors.Is(r.Err, shard.ErrRulesUnreadable) || !shard.SafeToRetry(r.Err) {
			t.Errorf("%s: %+v", s.Kind, r)
		}
	}
	b.advance(20 * time.Second)
	closed, _ := b.closeDue(shard.CloseWaits{})
	byCampaign := map[ids.CampaignID]int{}
	for _, c := range closed {
		byCampaign[c.Order.Campaign]++
		if c.Err != nil || c.Order.State != reservation.OrderClosed {
			t.Errorf("%+v", c)
		}
	}
	if byCampaign["damaged"] != 1 || byCampaign[campaign] != 2 {
		t.Errorf("closed %v", byCampaign)
	}
	bad.Version++
	b.install(bad)
	if r := b.step(refund); r.Err != nil {
		t.Errorf("after the cure: %+v", r)
	}
	if _, err := b.store.Campaigns(b.ctx); err != nil || metricValue(t, b.reg, "cellquota_rules_unreadable") != 0 {
		t.Errorf("the metric stayed: %v", err)
	}
	b.invariants()
}
