package reconcile_test

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// What a full comparison of a million requests may take (issue 8), and its process.
const (
	fullGoal = time.Minute
	heapGoal = 200 // MB
)

// BenchmarkRun compares a SKU in full, a tenth of whose requests were ordered and the rest rejected, loaded
// by the shard's own batches. One step of ten must cost ten times as much; a million, which takes minutes
// to load, only with BENCH_FULL set.
func BenchmarkRun(b *testing.B) {
	sizes := []int{10_000, 100_000}
	if os.Getenv("BENCH_FULL") != "" {
		sizes = append(sizes, 1_000_000)
	}
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := loaded(b, n)
			pages, err := s.Store.Ledgers(s.Ctx, shard.LedgersConfig{})
			s.Must(err)
			loop, err := reconcile.New(reconcile.Config{Cell: shardtest.Cell, Owner: "bench"}, s.Store, pages, nil, nil, func() []reconcile.Place { return nil },
				reconcile.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
			s.Must(err)
			peak := heapPeak(b)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				_, err := s.Store.AskRun(s.Ctx, shard.ReconcileRun{ID: fmt.Sprint("run-", i), Actor: "bench"}, "")
				s.Must(err)
				s.Must(loop.Runs(s.Ctx))
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(n)*1e6, "µs/request")
			b.ReportMetric(float64(peak())/(1<<20), "peak-heap-MB")
			b.ReportMetric(heapGoal, "goal-heap-MB")
			if n == 1_000_000 {
				b.ReportMetric(fullGoal.Seconds(), "goal-s")
			}
			if open, err := s.Store.OpenFindings(s.Ctx, 1); err != nil || len(open) > 0 {
				b.Fatalf("found %v %v", open, err)
			}
		})
	}
}

// loaded is a shard with n requests behind it.
func loaded(b *testing.B, n int) *shardtest.Shard {
	b.Helper()
	s := shardtest.New(b, 1)
	s.Ctx = b.Context() // a million takes longer to load than a test may
	_, err := s.Store.ApplyAdjustment(s.Ctx, shard.Adjustment{
		ID: "g2", Campaign: shardtest.Campaign, SKU: shardtest.SKU, FenceVersion: 1, Number: 2, Kind: shard.Grant, Units: int32(n / 10), TermCount: 1, TermID: "t",
	})
	s.Must(err)
	const size = 1000
	for at := 0; at < n; at += size {
		from, _, err := s.Store.ReadPosition(s.Ctx, "t", 0)
		s.Must(err)
		batch := shard.Batch{From: from, To: from.Next + size}
		for i := range size {
			user := ids.UserID(fmt.Sprint("load", at+i))
			build := ids.Build{Fence: 1, Count: 1}
			batch.Messages = append(batch.Messages, shard.Message{Offset: from.Next + int64(i), Admission: reservation.Admission{
				Reservation: ids.DeriveReservation(shardtest.Campaign, shardtest.SKU, user, "r", shardtest.Cell, build), Request: "r", Campaign: shardtest.Campaign,
				SKU: shardtest.SKU, User: user, Quantity: 1, Build: build, Fingerprint: "f", Price: shardtest.Price, AdmittedAt: clock.System().Now().Add(-time.Second),
			}})
		}
		_, err = s.Store.ApplyOrders(s.Ctx, batch)
		s.Must(err)
	}
	s.Exec("ANALYZE") // as autovacuum does within a minute
	return s
}

// heapPeak samples the heap in use, garbage included, until the returned function is called, which tells
// the most that was seen.
func heapPeak(b *testing.B) (stop func() uint64) {
	b.Helper()
	runtime.GC() // what loading left
	most, done, ended := uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	end := sync.OnceFunc(func() { close(done); <-ended })
	b.Cleanup(end)
	return func() uint64 { end(); return most }
}
