package shard_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestK85TheLastUnit: 200 calls at once on every way that takes from one available unit: messages of 20
// partitions, orders that customers ask the shard for themselves, and returns. One of them has it, in
// either inventory mode; nobody skips the guard.
func TestK85TheLastUnit(t *testing.T) {
	for name, mode := range map[string]func(*cellquotav1.CampaignRules){"COUNTER": func(*cellquotav1.CampaignRules) {}, "TOKEN": tokens} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.sell(1, mode)
			build := b.build
			var took atomic.Int32
			taken := func(yes bool) {
				if yes {
					took.Add(1)
				}
			}
			ways := []func(i int) error{
				func(i int) error {
					at := shard.Position{Topic: topic, Partition: int32(1 + i), TopicID: topicID, Epoch: -1}
					if err := b.store.StartPosition(b.ctx, at); err != nil {
						return err
					}
					m := buyer(i, 0, phone, build)
					res, err := b.store.ApplyOrders(b.ctx, shard.Batch{From: at, To: 1, Messages: []shard.Message{m}})
					if err == nil {
						taken(res.Decisions[0].Outcome == shard.Ordered)
					}
					return err
				},
				func(i int) error {
					s := b.numbered(phone, shard.Return, 1)
					s.ID = fmt.Sprint("return-", i)
					res, err := b.store.ApplyAdjustment(b.ctx, s)
					if errors.Is(err, shard.ErrNumberGap) { // another one took the number
						return nil
					}
					taken(err == nil && res.Outcome == shard.Applied && !res.Replayed)
					return err
				},
			}
			parallel(b, 200, func(i int32) error { return ways[i%2](int(i)) })
			if s := b.stock(phone); took.Load() != 1 || s.Available != 0 || s.Reserved != s.Granted {
				t.Errorf("%d took the last unit: %+v", took.Load(), s)
			}
			b.invariants()
		})
	}
}

// TestK85TheShardAlone: the same where the shard alone sells, without mirror and log.
func TestK85TheShardAlone(t *testing.T) {
	b := newBench(t)
	b.install(func() *cellquotav1.CampaignRules { r := rules(phone); tokens(r); return r }())
	b.grant(phone, 1)
	var took atomic.Int32
	parallel(b, 200, func(i int32) error {
		res, err := b.store.ApplyDirect(b.ctx, []shard.DirectAsk{{
			Campaign: campaign, SKU: phone, User: ids.UserID(fmt.Sprint("u", i)), Request: "r", Quantity: 1,
		}})
		if err == nil && res[0].Outcome == shard.DirectOrdered {
			took.Add(1)
		}
		return err
	})
	if s := b.stock(phone); took.Load() != 1 || s.Reserved != 1 || s.Available != 0 {
		t.Errorf("%d took the last unit: %+v", took.Load(), s)
	}
	b.invariants()
}

// TestHoldsOfTheShardAlone: bounds on unpaid orders hold there too.
func TestHoldsOfTheShardAlone(t *testing.T) {
	b := newBench(t)
	r := rules(phone)
	holdsAtMost(0, 1)(r)
	b.install(r)
	b.grant(phone, 5)
	ask := func(user ids.UserID) shard.DirectAsk {
		return shard.DirectAsk{Campaign: campaign, SKU: phone, User: user, Request: "r", Quantity: 1, DeviceID: "d"}
	}
	res, err := b.store.ApplyDirect(b.ctx, []shard.DirectAsk{ask("a"), ask("b")})
	b.must(err)
	if res[0].Outcome != shard.DirectOrdered || res[1].Outcome != shard.DirectRefused || res[1].Reason != reservation.TooManyUnpaid {
		t.Errorf("%+v", res)
	}
	b.invariants()
}
