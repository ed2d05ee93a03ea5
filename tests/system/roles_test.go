//go:build system

package system

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// C-14 with real processes: a cell has three of each role, and in a running sale one of each role,
// in an order by chance, is killed (-9) or frozen for a while. Everything that was accepted is finished
// (I6), and after quiet I1 to I7 hold and the mirror is the shard's (I9).
func TestAnyProcessOfAnyRoleDies(t *testing.T) {
	const each = 3
	seed := uint64(time.Now().UnixNano() % 1e9)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 14))
	p := start(t, "--cells", "1", "--processes", fmt.Sprint(each), "--split-roles", "--restart", "--set", "cell.payment.attempt_grace=2s")
	p.publish(sale{ID: "roles", Limit: 5000, TTL: "5s"})
	stop := p.check()
	choir, voices, silence := p.sing("roles", 50*time.Millisecond)
	defer silence()
	testkit.Eventually(t, 20*time.Second, func() error { return choir.sells(time.Time{}) })
	crowd := make(chan string, 1)
	go func() { crowd <- p.buyers("roles", "200") }()
	for _, role := range r.Perm(len(layout.Roles)) {
		victim := fmt.Sprintf("cell-1/p%d", 1+role+len(layout.Roles)*r.IntN(each))
		t.Logf("%s is one of %s", victim, layout.Roles[role])
		if r.IntN(2) == 0 {
			p.kill(victim)
			testkit.Hold(t, time.Second, "a process less")
			continue
		}
		if _, err := p.Kill(t.Context(), victim, platform.STOP); err != nil {
			t.Fatalf("freeze %s: %v", victim, err)
		}
		testkit.Hold(t, time.Duration(500+r.IntN(1500))*time.Millisecond, "frozen")
		if _, err := p.Kill(t.Context(), victim, platform.CONT); err != nil {
			t.Fatalf("thaw %s: %v", victim, err)
		}
	}
	whole := time.Now()
	testkit.Eventually(t, 30*time.Second, func() error { return choir.sells(whole) })
	history := <-crowd
	silence()
	p.allReady()
	p.quiet("roles")
	stop()
	p.holds("roles", voices, history)
}
