package reconcile_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
	"github.com/cellquota/cellquota/internal/clock"
)

// TestOneRunWritesABoundedNumber: eight reservations without their users' places are written three at a
// time, the rest is told, nothing that is known counts again, and the third run has all.
func TestOneRunWritesABoundedNumber(t *testing.T) {
	s := shardtest.New(t, 8)
	s.Exec("DELETE FROM cellquota.buyers")
	pages, err := s.Store.Ledgers(s.Ctx, shard.LedgersConfig{})
	s.Must(err)
	loop, err := reconcile.New(reconcile.Config{Cell: shardtest.Cell, Owner: "test", Fresh: 3, Confirm: time.Millisecond}, s.Store, pages, nil, nil, func() []reconcile.Place { return nil },
		reconcile.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	s.Must(err)
	for i, want := range []struct {
		found, left int
	}{{3, 5}, {6, 2}, {8, 0}, {8, 0}} {
		s.Advance(time.Second)
		run := shard.ReconcileRun{ID: fmt.Sprint("run-", i), Actor: "test"}
		_, err := s.Store.AskRun(s.Ctx, run, "")
		s.Must(err)
		s.Must(loop.Runs(s.Ctx))
		run, err = s.Store.AskRun(s.Ctx, run, "")
		s.Must(err)
		if run.Found != want.found || want.left > 0 != strings.Contains(run.Detail, fmt.Sprint(want.left, " more differences")) || want.left == 0 && run.Detail != "" {
			t.Errorf("run %d: found %d, %q; want %d found, %d left", i, run.Found, run.Detail, want.found, want.left)
		}
		open, err := s.Store.OpenFindings(s.Ctx, 100)
		if s.Must(err); len(open) != want.found {
			t.Errorf("run %d: %d findings are written, want %d", i, len(open), want.found)
		}
	}
}
