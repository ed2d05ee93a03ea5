//go:build chaos

package system

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The long version of TestAnyProcessMayDie: our processes are killed or frozen at random while sales
// go on, round after round, for CHAOS_MINUTES [15]. CHAOS_SEED repeats a run.
func TestChaosOfProcesses(t *testing.T) {
	minutes, seed := number(t, "CHAOS_MINUTES", 15), uint64(number(t, "CHAOS_SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("CHAOS_MINUTES=%d CHAOS_SEED=%d", minutes, seed)
	p := start(t, "--cells", "3", "--edges", "2", "--processes", "2", "--restart")
	r := rand.New(rand.NewPCG(seed, 2))
	end := time.Now().Add(time.Duration(minutes) * time.Minute)
	faults := 0
	for round := 0; time.Now().Before(end); round++ {
		sale := sale{ID: fmt.Sprintf("chaos-%d", round), Limit: 900, Reserve: 90, TTL: "8s", Stock: 900_000} // one SKU, round after round: R-010 adds their limits up
		p.publish(sale)
		stop := p.check()
		history := filepath.Join(t.TempDir(), "history.jsonl")
		done := p.load(t.Context(), "--campaign", sale.ID, "--sku", "phone-x", "--users", "6000", "--rate", "150", "--repeat", "0.2", "--second", "0.05",
			"--press", "2", "--pay", "0.8", "--cancel", "0.05", "--pay-twice", "0.05", "--history", history, "--seed", strconv.FormatUint(seed+uint64(round), 10), "--prefix", fmt.Sprintf("u%d", round))
		for code := -1; code < 0; {
			select {
			case code = <-done:
				if code != 0 {
					t.Errorf("round %d: load exit %d", round, code)
				}
			default:
				testkit.Hold(t, time.Duration(300+r.IntN(2500))*time.Millisecond, "a random moment of the sale")
				p.anyFault(r)
				faults++
			}
		}
		p.allReady()
		p.quiet(sale.ID)
		stop()
		p.must("verify", "--campaign", sale.ID, "--history", history, "--timeout", "120s")
		p.must("campaign", "close", sale.ID, "--reason", "the round is over")
		if t.Failed() {
			break
		}
	}
	t.Logf("%d faults", faults)
}

// anyFault kills one of our processes, or freezes it for a while.
func (p *local) anyFault(r *rand.Rand) {
	p.t.Helper()
	victims := []string{"controlplane-1", "edge-1", "edge-2"}
	for cell := 1; cell <= 3; cell++ {
		for process := 1; process <= 2; process++ {
			victims = append(victims, fmt.Sprintf("cell-%d/p%d", cell, process))
		}
	}
	victim := victims[r.IntN(len(victims))]
	if r.IntN(3) > 0 {
		p.kill(victim)
		return
	}
	hold := time.Duration(200+r.IntN(8000)) * time.Millisecond
	p.t.Logf("freeze %s for %s", victim, hold)
	if _, err := p.Kill(p.t.Context(), victim, platform.STOP); err != nil {
		return // it is down already
	}
	testkit.Hold(p.t, hold, "frozen")
	if _, err := p.Kill(p.t.Context(), victim, platform.CONT); err != nil {
		p.t.Logf("continue %s: %v", victim, err)
	}
}

func number(t *testing.T, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: must be a number of at least 1", name, text)
	}
	return n
}

// A minute of kill -9, SIGSTOP and moved leaders of three replicas over three members
// of etcd, under mutations. CHAOS_SEED repeats a run.
func TestChaosControlPlane(t *testing.T) {
	controlPlaneChaos(t, time.Minute, uint64(number(t, "CHAOS_SEED", int(time.Now().UnixNano()%1e9))))
}
