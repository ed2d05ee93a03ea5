package verify_test

import (
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The Verifier's memory does not grow with the orders: of 100,000 it needs less than three
// times what it needs of 10,000. It sees them all: two orders of one user at the far end are
// named.
func TestVerifyInConstantMemory(t *testing.T) {
	w := newWorld(t)
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	orders := func(from, to int) {
		for cell, name := range map[ids.CellID]string{"cell-1": "cell-1", "cell-2": "cell-2"} {
			w.shards[cell].unguarded(`INSERT INTO cellquota.reservations (reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, fence_version, build_count, expires_at, created_at, updated_at)
				SELECT '` + name + `-r' || n, 'q' || n, 'c', 's', 'zz-` + name + `-' || lpad(n::text, 7, '0'), 1, 'RELEASED', 1, 1, now(), now(), now() FROM generate_series(` + strconv.Itoa(from) + `, ` + strconv.Itoa(to) + `) n`)
			w.shards[cell].unguarded(`INSERT INTO cellquota.orders (order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, state, version, expires_at, close_after, created_at, closed_at)
				SELECT '` + name + `-o' || n, '` + name + `-r' || n, 'q' || n, 'c', 's', 'zz-` + name + `-' || lpad(n::text, 7, '0'), 1, 10, 'CNY', 'CLOSED', 1, now(), now(), now(), now() FROM generate_series(` + strconv.Itoa(from) + `, ` + strconv.Itoa(to) + `) n`)
			w.shards[cell].do("ANALYZE")
		}
	}
	orders(1, 5_000)
	_ = w.peak(t) // pools and buffers are there
	few := w.peak(t)
	orders(5_001, 50_000)
	many := w.peak(t)
	t.Logf("peak of 10,000 orders: %d kB, of 100,000: %d kB", few>>10, many>>10)
	if many > 3*max(few, 2<<20) {
		t.Errorf("of 10,000 orders %d bytes, of 100,000 %d", few, many)
	}
	w.shards["cell-2"].unguarded("UPDATE cellquota.orders SET user_id = 'zz-cell-1-0050000' WHERE order_id = 'cell-2-o50000'")
	r := w.verify() // which names I7 as well: the ledger has none of the orders
	if verdict(r, verify.I4) != verify.Broken || len(r.Breaches) > 1000 || !names(r, verify.I4, "zz-cell-1-0050000", "cell-1-o50000", "cell-2-o50000") {
		t.Errorf("the last two orders are of one user: %+v", r.Breaches[:min(3, len(r.Breaches))])
	}
}

// peak verifies once, and gives the most bytes of live and not yet swept objects beyond
// those before it.
func (w *world) peak(t *testing.T) uint64 {
	t.Helper()
	debug.FreeOSMemory()
	before := heap()
	most, stop := before, make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				most = max(most, heap())
			}
		}
	})
	_, err := verify.New(w, w.reader, w, clock.System()).Verify(testkit.Deadline(t), "c")
	close(stop)
	watch.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return most - before
}

func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
