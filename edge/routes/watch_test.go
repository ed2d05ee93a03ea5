package routes_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

type fixture struct {
	*routes.Watcher
	mu      sync.Mutex
	applied []int64
}

// watch runs a watcher of these control planes until the test ends.
func watch(t *testing.T, planes ...*celltest.Control) *fixture {
	t.Helper()
	f := &fixture{}
	d := routes.Deps{
		EdgeID: "e1", Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		Applied: func(s *routes.Snapshot) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.applied = append(f.applied, s.Revision)
		},
	}
	for _, p := range planes {
		conn, err := transport.Dial(p.Addr, transport.DialOptions{Dev: true, Workload: "edge/e1"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		d.Replicas = append(d.Replicas, cq.NewRoutingServiceClient(conn))
	}
	w, err := routes.NewWatcher(d)
	if err != nil {
		t.Fatal(err)
	}
	f.Watcher = w
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return f
}

func (f *fixture) until(t *testing.T, revision int64) *routes.Snapshot {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		if s := f.Snapshot(); s == nil || s.Revision != revision {
			return fmt.Errorf("snapshot %+v, want revision %d", s, revision)
		}
		return nil
	})
	return f.Snapshot()
}

func full(revision int64, campaigns ...string) *cq.WatchRoutesResponse {
	m := &cq.WatchRoutesResponse{Revision: revision, Full: true, Keys: []*cq.KeyInfo{{Use: "permit", Kid: "k1", State: "ACTIVE"}}}
	for _, id := range campaigns {
		m.Campaigns = append(m.Campaigns, celltest.Route(id, clock.System().Now(), "cell-1"))
	}
	m.Cells = []*cq.CellRoute{{CellId: "cell-1", State: cq.CellState_CELL_STATE_ACTIVE, Addresses: []string{"127.0.0.1:1"}}}
	return m
}

func names(s *routes.Snapshot) (out []ids.CampaignID) {
	s.Campaigns(func(c *route.Campaign) bool {
		out = append(out, c.ID)
		return true
	})
	return out
}

// active: permit key k1 and no other has a state, and that is ACTIVE.
func active(s *routes.Snapshot) bool {
	states := s.KeyStates(signed.UsePermit)
	return len(states) == 1 && states[0].KID == "k1" && states[0].State == signed.Active
}

// Snapshots are immutable, changes are applied in order and acknowledged after readers see them.
func TestWatch(t *testing.T) {
	plane := celltest.StartControl(t)
	plane.Send(full(5, "a", "b"))
	f := watch(t, plane)
	<-f.Ready()
	old := f.until(t, 5)
	if !f.Connected() || len(names(old)) != 2 || !old.Cell("cell-1").Admits() || !active(old) {
		t.Fatalf("snapshot has %v, %+v", names(old), old.Cell("cell-1"))
	}
	plane.Send(&cq.WatchRoutesResponse{Revision: 6, RemovedCampaigns: []string{"a"}, RemovedCells: []string{"cell-1"}, Campaigns: full(0, "c").Campaigns})
	now := f.until(t, 6)
	if got := names(now); len(got) != 2 || got[0] != "b" || got[1] != "c" || now.Cell("cell-1") != nil || !active(now) {
		t.Errorf("after the change: %v", got)
	}
	if len(names(old)) != 2 || names(old)[0] != "a" || old.Cell("cell-1") == nil {
		t.Error("the older snapshot changed under its reader")
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		acks, _ := plane.Acked()
		if len(acks) != 2 || acks[0] != 5 || acks[1] != 6 {
			return fmt.Errorf("acknowledged %v", acks)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.applied) != 2 {
			return fmt.Errorf("told %v", f.applied)
		}
		return nil
	})
	// A full snapshot forgets everything else, keys included.
	m := full(7, "z")
	m.Keys = nil
	plane.Send(m)
	now = f.until(t, 7)
	if got := names(now); len(got) != 1 || got[0] != "z" || len(now.KeyStates("permit")) != 0 {
		t.Errorf("after a full one: %v, %v", got, now.KeyStates("permit"))
	}
}

// A replica that lags never takes the edge back; the next one is asked.
func TestLaggingReplica(t *testing.T) {
	ahead, behind := celltest.StartControl(t), celltest.StartControl(t)
	ahead.Send(full(10, "new"))
	behind.Send(full(9, "old"))
	f := watch(t, ahead, behind)
	f.until(t, 10)
	ahead.Stop()
	testkit.Eventually(t, 10*time.Second, func() error {
		if _, hellos := behind.Acked(); hellos < 2 {
			return fmt.Errorf("the second replica was asked %d times", hellos)
		}
		return nil
	})
	if s := f.Snapshot(); s.Revision != 10 || names(s)[0] != "new" || f.Connected() {
		t.Fatalf("went back to revision %d", s.Revision)
	}
	behind.Send(full(11, "newer"))
	if got := names(f.until(t, 11)); got[0] != "newer" {
		t.Errorf("caught up to %v", got)
	}
}
