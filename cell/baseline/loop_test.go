package baseline_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/baseline"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

var scope = admission.Scope{Campaign: "c", SKU: "s"}

// cell is the neighbours of one loop: the mirror's row in the shard, which raises what the log carries,
// and a Redis that is there or not. The real ones are asked in cell's own tests.
type cell struct {
	minted, raised ids.Build
	open, busy     bool
	mints          int
	redis          bool
	atBarrier      func() // before the barrier is consumed
}

func (c *cell) Writer() (shard.Writer, bool) { return shard.Writer{FenceVersion: 1}, true }

func (c *cell) Server(context.Context) (string, error) {
	if !c.redis {
		return "", admission.ErrUnavailable
	}
	return "run-1", nil
}

func (c *cell) MintBuild(context.Context, ids.CampaignID, string, string, time.Duration) (shard.Mint, error) {
	if c.busy {
		return shard.Mint{}, shard.ErrBusy
	}
	c.mints++
	c.minted, c.open = ids.Build{Fence: 1, Count: c.minted.Count + 1}, false
	return shard.Mint{Build: c.minted, NeedsBarrier: true}, nil
}

func (c *cell) RaiseBuild(context.Context, ids.CampaignID, string, ids.Build) error {
	return shard.ErrConflict // every build needs a barrier here
}

func (c *cell) Barrier(_ context.Context, _ admission.Scope, build ids.Build) error {
	if c.atBarrier != nil {
		c.atBarrier()
	}
	if build == c.minted {
		c.raised = build
	}
	return nil
}

func (c *cell) AwaitRaised(_ context.Context, _ ids.CampaignID, _ string, build ids.Build) error {
	if c.raised != build {
		return shard.ErrConflict
	}
	return nil
}

func (c *cell) Baseline(context.Context, ids.CampaignID, string) (ids.Build, bool, error) {
	return c.raised, c.open, nil
}

func (c *cell) OpenBaseline(_ context.Context, _ ids.CampaignID, _, _ string, build ids.Build) error {
	if c.raised != build || c.minted != build {
		return shard.ErrConflict
	}
	c.open = true
	return nil
}

// rebuilt is what another process does that has Redis.
func (c *cell) rebuilt() {
	c.minted.Count++
	c.raised, c.open = c.minted, false
}

// looker is a loop on a cell that has one mirror, after Redis fell silent.
func looker(t *testing.T, c *cell) (l *baseline.Loop, look func(after time.Duration) bool) {
	t.Helper()
	c.minted, c.raised, c.redis = ids.Build{Fence: 1, Count: 1}, ids.Build{Fence: 1, Count: 1}, true
	now := clock.NewManual(time.Unix(1000, 0))
	l = baseline.New(baseline.Config{Owner: "p1"}, c, c, c, func() []admission.Scope { return []admission.Scope{scope} }, now, slog.New(slog.DiscardHandler))
	look = func(after time.Duration) bool {
		now.Advance(after)
		_ = l.Look(t.Context())
		return l.Open(scope)
	}
	look(0)
	c.redis = false
	return l, look
}

// TestItOpensAfterASilence, and closes for this process as soon as Redis answers.
func TestItOpensAfterASilence(t *testing.T) {
	c := &cell{}
	_, look := looker(t, c)
	if look(2*time.Second) || c.mints != 0 {
		t.Fatal("a hiccup opened it")
	}
	c.busy = true
	if look(2 * time.Second) {
		t.Fatal("opened while another process is at it")
	}
	c.busy = false
	if !look(time.Millisecond) || !c.open || c.mints != 1 {
		t.Fatalf("not opened: %+v", c)
	}
	if !look(time.Hour) || c.mints != 1 {
		t.Fatalf("opened again: %+v", c)
	}
	c.redis = true
	if look(time.Millisecond) {
		t.Fatal("Redis is back and this process goes past it")
	}
}

// TestItLeavesTheMirrorOfOthers: a build above ours, raised while ours was open or being opened, is of
// somebody who has Redis: it is closed again after a minute at the earliest, then two, up to half an hour
// (whoever built it may die meanwhile), and as ever once our own Redis has answered.
func TestItLeavesTheMirrorOfOthers(t *testing.T) {
	for name, opening := range map[string]bool{"while open": false, "while being opened": true} {
		t.Run(name, func(t *testing.T) {
			c := &cell{}
			_, look := looker(t, c)
			overtaken := func(after time.Duration) {
				if opening {
					c.atBarrier = c.rebuilt
				}
				look(after)
				if !opening {
					c.rebuilt()
				}
				look(0)
			}
			overtaken(3 * time.Second)
			for n, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
				if look(wait*time.Minute - time.Second); c.mints != n+1 {
					t.Fatalf("within %d minutes it closed a mirror that others sell by: %+v", wait, c)
				}
				if overtaken(time.Second); c.mints != n+2 {
					t.Fatalf("after %d minutes it did not try: %+v", wait, c)
				}
			}
			c.atBarrier, c.open = nil, true // the others have lost Redis too
			if !look(time.Second) {
				t.Fatal("the others' baseline is not seen")
			}
			c.rebuilt()
			c.redis = true
			look(time.Second)
			c.redis = false
			if look(time.Second) || !look(3*time.Second) {
				t.Fatalf("after Redis had answered and fell silent again: %+v", c)
			}
		})
	}
}

// TestATryThatFailsIsMadeAgain, each time after twice the time: without the log there is no barrier.
func TestATryThatFailsIsMadeAgain(t *testing.T) {
	c := &cell{}
	_, look := looker(t, c)
	c.atBarrier = func() { c.minted.Count++ } // the barrier comes too late to count
	look(3 * time.Second)
	for n, wait := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second} {
		if look(wait - time.Millisecond); c.mints != n+1 {
			t.Fatalf("try %d came early", c.mints)
		}
		if look(time.Millisecond); c.mints != n+2 {
			t.Fatalf("try %d did not come after %v", n+2, wait)
		}
	}
}
