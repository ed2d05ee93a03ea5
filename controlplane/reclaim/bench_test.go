package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

const (
	benchRounds  = 50
	benchWriters = 16    // of a busy cell, each with a transaction under way at any time
	benchUnits   = 2_400 // of the cell that is fenced
)

// BenchmarkFenceReclaimTopUp: from the order `cell fence --reclaim --top-up` of a cell
// with 2,400 units and 16 writers at it, to the units on sale in the other cells'
// shards. The etcd, the three shards, the orders and the driver are real; the stream by
// which a leader tells a cell of a grant, and its mirror, are not in it.
func BenchmarkFenceReclaimTopUp(b *testing.B) {
	etcd := testkit.Etcd(b, 1)
	for b.Loop() {
		var rounds []round
		for range benchRounds {
			w := newWorldIn(b, etcd, true)
			w.share = benchUnits
			w.publish()
			rounds = append(rounds, w.away())
		}
		tell(b, rounds, time.Second)
	}
}

// BenchmarkFence: one fence, at a shard with 16 writers at it.
func BenchmarkFence(b *testing.B) {
	etcd := testkit.Etcd(b, 1)
	for b.Loop() {
		var rounds []round
		w := newWorldIn(b, etcd, false)
		w.share = benchUnits
		w.publish()
		for n := range benchRounds {
			rounds = append(rounds, w.fenced(n))
		}
		tell(b, rounds, 0)
	}
}

// round is one measured fence.
type round struct{ took, lock time.Duration }

// tell prints the middle, the slowest, and how long that one waited for the writers'
// lock; goal is the middle's, 0: none.
func tell(b *testing.B, rounds []round, goal time.Duration) {
	b.Helper()
	slices.SortFunc(rounds, func(x, y round) int { return int(x.took - y.took) })
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1_000 }
	last := rounds[len(rounds)-1]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(rounds[len(rounds)/2].took), "p50-ms")
	b.ReportMetric(ms(rounds[len(rounds)*9/10].took), "p90-ms")
	b.ReportMetric(ms(last.took), "slowest-ms")
	b.ReportMetric(ms(last.lock), "slowest-lock-wait-ms")
	if goal > 0 {
		b.ReportMetric(ms(goal), "p50-goal-ms")
	}
}

// away fences the busy cell-1 and waits until others can sell what it did not.
func (w *world) away() round {
	w.t.Helper()
	stop := w.shards["cell-1"].writers(1, "w")
	lock := w.shards["cell-1"].waiting()
	defer func() { _ = lock(); stop() }()
	began := time.Now()
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Force: true, Reclaim: true, TopUp: true})
	w.done("f1")
	w.takeUp()
	return round{time.Since(began), lock()}
}

// takeUp has the shards of the others apply what they were granted.
func (w *world) takeUp() {
	w.t.Helper()
	applied := 0
	for _, r := range w.seen().OpenRecords() {
		for _, a := range r.Adjustments {
			if a.Open() && a.Kind == core.KindGrant {
				w.apply(core.Record{ID: r.ID, Adjustments: []core.Adjustment{a}})
				applied++
			}
		}
	}
	if applied != 2 {
		w.t.Fatalf("%d cells were given units, want the two others", applied)
	}
}

// fenced is one fence of cell-1's shard; afterwards it sells again.
func (w *world) fenced(n int) round {
	w.t.Helper()
	s, version := w.shards["cell-1"], int64(1+2*n)
	ctx := testkit.Deadline(w.t)
	f, err := (reclaim.Files{}).Fencer(ctx, w.spec("cell-1", s.file))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close(ctx) }()
	stop := s.writers(version, fmt.Sprintf("w%d-", n))
	lock := s.waiting()
	began := time.Now()
	_, err = f.Fence(ctx, "cell-1", fencing.Version(version+1), "bench")
	out := round{time.Since(began), lock()}
	stop()
	back := fencing.Version(version + 2)
	err = errors.Join(err, f.Restore(ctx, "cell-1", back, "blue", "bench"), f.Activate(ctx, "cell-1", back, "bench"))
	if err != nil {
		w.t.Fatal(err)
	}
	s.do("SELECT sale.adjust($1, 's', $2, 1, 'GRANT', $3, 'r')", back.Int64(), fmt.Sprintf("g%d", n), benchUnits)
	return out
}

// writers keeps 16 sales under way at the shard until it is fenced or stop is called,
// and returns once 16 are sold.
func (s *shard) writers(version int64, prefix string) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	var sold atomic.Int64
	for i := range benchWriters {
		conn := s.db.ConnAs(s.t, migrate.RoleApp)
		group.Go(func() {
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // 800 in all
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := conn.Exec(ctx, "SELECT sale.sell($1, 's', $2)", version, fmt.Sprintf("%s%d-%d", prefix, i, n)); err != nil {
					return // fenced
				}
				sold.Add(1)
			}
		})
	}
	testkit.Eventually(s.t, wait, func() error {
		if n := sold.Load(); n < benchWriters {
			return fmt.Errorf("%d sales", n)
		}
		return nil
	})
	return func() { cancel(); group.Wait() }
}

// waiting measures how long the fencer waits for the writers' lock, to a millisecond or
// the server's own pace; the func ends it and may be called again.
func (s *shard) waiting() func() time.Duration {
	s.t.Helper()
	conn := s.db.Conn(s.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var waited time.Duration
	go func() {
		defer close(done)
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		var first time.Time
		for ctx.Err() == nil {
			var locked bool
			err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'cellquota-fencer'
				AND wait_event_type = 'Lock' AND datname = current_database())`).Scan(&locked)
			switch {
			case err != nil:
				return
			case locked && first.IsZero():
				first = time.Now()
			case locked:
				waited = time.Since(first)
			}
			_ = clock.System().Sleep(ctx, time.Millisecond)
		}
	}()
	return func() time.Duration { cancel(); <-done; return waited }
}
