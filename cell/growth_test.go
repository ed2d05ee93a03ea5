package cell

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestNothingGrowsWithSales is K73: units that are sold and come back again and again, by cancelled orders.
// After each round has drained, the streams and the sets of what is under way are empty, and the memory of
// Redis has grown by what one customer leaves (a mark and a request's record), not by what passed through.
func TestNothingGrowsWithSales(t *testing.T) {
	const units, rounds, perCustomer = 40, 8, 2 << 10
	w, p := selling(t, units)
	rdb := w.redis.Client(t)
	var first int64
	for round := range rounds {
		var asks []*pb.Ask
		for i := range units {
			asks = append(asks, w.ask(fmt.Sprintf("u%d-%d", round, i), "r1"))
		}
		for i, a := range p.exchange(asks...) {
			user := fmt.Sprintf("u%d-%d", round, i)
			order := p.reaches(user, "r1", want(t, a, pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest().GetReceipt(), pending).GetOrderId()
			_, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: order, UserId: user})
			w.must(err)
		}
		p.stocked(units) // every unit is back, and the gate open
		testkit.Eventually(t, patience, func() error { return w.drained(rdb) })
		used := w.usedMemory(rdb)
		if round == 0 {
			first = used
			continue
		}
		if grown := used - first; grown > int64(round*units*perCustomer) {
			t.Errorf("after %d customers more Redis holds %d bytes more", round*units, grown)
		}
	}
	if n := w.count("SELECT count(*) FROM cellquota.orders WHERE state = 'CLOSED'"); n != units*rounds {
		t.Errorf("%d orders are closed, want %d", n, units*rounds)
	}
}

// drained is nil when no stream and no set of what is under way holds anything.
func (w *world) drained(rdb *redis.Client) error {
	keys, err := rdb.Keys(w.ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		var n int64
		switch kind := rdb.Type(w.ctx, key).Val(); kind {
		case "stream":
			n, err = rdb.XLen(w.ctx, key).Result()
		case "zset":
			n, err = rdb.ZCard(w.ctx, key).Result()
		}
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%s holds %d", key, n)
		}
	}
	return nil
}

func (w *world) usedMemory(rdb *redis.Client) int64 {
	w.t.Helper()
	info, err := rdb.Info(w.ctx, "memory").Result()
	w.must(err)
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory_dataset:"); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			w.must(err)
			return n
		}
	}
	w.t.Fatal("no used_memory_dataset")
	return 0
}
