package rebuild_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/rebuild"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/testkit"
)

// An operator has a mirror made anew: nothing is admitted meanwhile, what was admitted keeps its answer,
// a repeat under the same id waits for the same rebuild, and another id asks for another one.
func TestAMirrorIsMadeAnewWhenAsked(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.must(b.one.loop.Look(b.ctx))
	b.must(b.one.loop.Look(b.ctx))
	g := b.one.accepted("ann", "r1")
	asks := rebuild.NewAsks(b.one.store, b.one.mirror, plans(1))
	ask := func(id string) bool {
		t.Helper()
		done, err := asks.Rebuild(b.ctx, id, scope.Campaign, phone)
		b.must(err)
		return done
	}
	if ask("op-1") {
		t.Fatal("done before any process looked at it")
	}
	if r := b.one.ask("bob", "r1"); r.Outcome != admission.NotReady {
		t.Fatalf("admitted into a mirror that is being made anew: %s", r.Outcome)
	}
	if ask("op-1") {
		t.Fatal("a repeat says that it is done")
	}
	b.everything()
	until := func(id string) {
		t.Helper()
		testkit.Eventually(t, 20*time.Second, func() error {
			if !ask(id) {
				return errors.New("not made yet")
			}
			return nil
		})
	}
	until("op-1")
	testkit.Eventually(t, 20*time.Second, func() error { // each process expects it at its next look
		if build, _ := b.one.mirror.Expected(scope); build.Count != 2 {
			return fmt.Errorf("build %s, want the second", build)
		}
		return nil
	})
	b.eventuallyState("ann", "r1", "ORDEREDPENDING_PAYMENT") // it was in the stream, in front of the barrier
	if r := b.one.decided("ann", "r1"); r.Outcome != admission.Replayed || r.Reservation != g.Reservation {
		t.Fatalf("ann/r1: %s", r.Outcome)
	}
	if got := b.quiet(); got != 9 {
		t.Fatalf("mirror has %d, want 9", got)
	}
	if !ask("op-1") {
		t.Error("a repeat afterwards is not done")
	}
	if build, _ := b.one.mirror.Expected(scope); build.Count != 2 {
		t.Errorf("a repeat made build %s", build)
	}
	if ask("op-2") {
		t.Error("another wish is done by what was made before")
	}
	until("op-2")
	if _, err := asks.Rebuild(b.ctx, "op-3", "nowhere", ""); !errors.Is(err, shard.ErrInvalid) {
		t.Errorf("a campaign without a mirror: %v", err)
	}
}
