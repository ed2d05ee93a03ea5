package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/cell/outbox"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
)

// pages is a shard whose rows lie on pages.
type pages struct {
	asked  []int64
	answer map[int64]shard.Pruned
	fails  error
	writer bool
}

func (p *pages) Writer() (shard.Writer, bool) { return shard.Writer{}, p.writer }

func (p *pages) PruneOutbox(_ context.Context, after int64, _ int, keep time.Duration) (shard.Pruned, error) {
	if keep != time.Hour {
		return shard.Pruned{}, errors.New("keeps for another time than the default")
	}
	p.asked = append(p.asked, after)
	return p.answer[after], p.fails
}

// TestPruneWalks: page by page from the first row until the shard says that it is over; a failure ends the
// walk, and a process that may not write begins none.
func TestPruneWalks(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := &pages{answer: map[int64]shard.Pruned{0: {Next: 7, Deleted: 3}, 7: {Next: 9}, 9: {Deleted: 2}}}
	p, err := outbox.NewPruner(outbox.PruneConfig{}, s, outbox.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Walk(t.Context()); err != nil || len(s.asked) != 0 {
		t.Errorf("without a writer: %v, %v", s.asked, err)
	}
	s.writer = true
	if err := p.Walk(t.Context()); err != nil || len(s.asked) != 3 || s.asked[2] != 9 {
		t.Errorf("walked %v, %v", s.asked, err)
	}
	if n, err := testutil.GatherAndCount(reg, "cellquota_outbox_pruned_total"); err != nil || n != 1 {
		t.Errorf("%d metrics, %v", n, err)
	}
	s.fails = shard.ErrUnavailable
	if err := p.Walk(t.Context()); !errors.Is(err, shard.ErrUnavailable) || len(s.asked) != 4 {
		t.Errorf("walked on after %v: %v", err, s.asked)
	}
}

// TestAWalkOverPendingRowsIsBounded: where nothing can go, a walk stops after a while and the next one
// goes on behind it, to the end and from the first row again.
func TestAWalkOverPendingRowsIsBounded(t *testing.T) {
	s := &pages{writer: true, answer: map[int64]shard.Pruned{}}
	const rows = 250
	for n := range int64(rows) {
		s.answer[n] = shard.Pruned{Next: n + 1}
	}
	s.answer[rows] = shard.Pruned{Deleted: 1}
	p, err := outbox.NewPruner(outbox.PruneConfig{}, s, outbox.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for n, upTo := range []int64{99, 199, rows, 99} {
		if err := p.Walk(t.Context()); err != nil || s.asked[len(s.asked)-1] != upTo {
			t.Errorf("walk %d came to page %d, want %d, %v", n, s.asked[len(s.asked)-1], upTo, err)
		}
	}
}
