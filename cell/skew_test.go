package cell

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func TestSkewCountsNoTravel(t *testing.T) {
	clk := clock.NewManual(time.Unix(1000, 0))
	for theirs, want := range map[time.Duration]time.Duration{
		-time.Second: -time.Second, 0: 0, 3 * time.Second: 0, 5 * time.Second: 0, 6 * time.Second: time.Second,
	} {
		at := clk.Now().Add(theirs)
		got, err := skewOf(t.Context(), clk, func(context.Context) (time.Time, error) {
			clk.Advance(5 * time.Second) // the answer takes long
			return at, nil
		})
		if err != nil || got != want {
			t.Errorf("a clock that said %s after the question: skew %s (%v), want %s", theirs, got, err, want)
		}
	}
	if _, err := skewOf(t.Context(), clk, func(context.Context) (time.Time, error) { return time.Time{}, errors.New("down") }); err == nil {
		t.Error("no answer is no skew")
	}
}

func TestSkewFault(t *testing.T) {
	for _, row := range []struct {
		redis, shard time.Duration
		fault        bool
	}{
		{0, 0, false},
		{400 * time.Millisecond, 0, false},
		{600 * time.Millisecond, 0, true},
		{0, -600 * time.Millisecond, true},
		{300 * time.Millisecond, -300 * time.Millisecond, true},
		{-450 * time.Millisecond, -450 * time.Millisecond, false},
	} {
		if got := skewFault(500*time.Millisecond, row.redis, row.shard); (got != "") != row.fault {
			t.Errorf("redis %s, shard %s: %q", row.redis, row.shard, got)
		}
	}
}

// TestSkewedCellIsNotReady: a cell whose PostgreSQL is two seconds ahead of its Redis and of the process
// takes no first attempt and says why in readyz, with Redis and without it; repeats have their answers,
// and it sells again when the clocks agree.
func TestSkewedCellIsNotReady(t *testing.T) {
	w, p := selling(t, 5)
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	p.reaches("alice", "r1", first.GetReceipt(), pending)
	skewed := func(want bool) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			ok, why := p.parts.health.ready()
			if (why["clock"] != "") != want || want && ok {
				return fmt.Errorf("ready %v: %v", ok, why)
			}
			return nil
		})
	}
	w.exec("CREATE OR REPLACE FUNCTION cellquota.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() + interval '2 seconds' $$")
	skewed(true)
	want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY)
	again := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest()
	if again.GetReservationId() != first.GetReservationId() {
		t.Fatalf("repeated as %v", again)
	}
	w.redis.Kill(t)
	testkit.Eventually(t, patience, func() error {
		if _, why := p.parts.health.ready(); why["redis"] == "" || why["clock"] == "" {
			return fmt.Errorf("%v", why)
		}
		return nil
	})
	w.exec("CREATE OR REPLACE FUNCTION cellquota.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$")
	skewed(false) // by the shard alone
	w.redis.Start(t)
	p.ready().stocked(4)
	want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
}

// TestLockWaitReachesTheGate: whoever keeps a stock row to himself is seen by the gate, in whatever
// process orders, and so are transactions that give up waiting.
func TestLockWaitReachesTheGate(t *testing.T) {
	w, p := selling(t, 50)
	tx, err := w.admin.Begin(w.ctx)
	w.must(err)
	_, err = tx.Exec(w.ctx, "SELECT FROM cellquota.stock FOR UPDATE")
	w.must(err)
	want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	testkit.Eventually(t, patience, func() error {
		if s := p.parts.health.signals(); s.LockWait < time.Second || s.FailureRate == 0 {
			return fmt.Errorf("signals %+v", s)
		}
		return nil
	})
	w.must(tx.Rollback(w.ctx))
	p.reaches("alice", "r1", "", pending)
	testkit.Eventually(t, patience, func() error {
		if s := p.parts.health.signals(); s.LockWait > 500*time.Millisecond || s.FailureRate > 0 {
			return fmt.Errorf("signals %+v", s)
		}
		return nil
	})
	p.stocked(49)
}
