//go:build system

package system

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The demo's own scenario, small: one cell killed, fenced, reclaimed, its units sold by others, the
// cell restored; the demo's exit code says whether an invariant was broken. Its customers repeat, pay, cancel,
// poll and press on after the sold-out (R-275, in kind); a cell's loss is what C-15 comes down to on one machine.
func TestMainJobSmall(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), program(t, "cellctl"), "dev", "demo")
	cmd.Env = append(os.Environ(), "DEMO_USERS=6000", "DEMO_STOCK=1000", "DEMO_CELLS=3", "DEMO_REPORT="+report)
	if kafka := os.Getenv("SYSTEM_KAFKA"); kafka != "" {
		cmd.Env = append(cmd.Env, "DEMO_KAFKA="+kafka)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, tail(out, 8000))
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Fatalf("report is not JSON:\n%s", tail(text, 2000))
	}
	t.Logf("%s", tail(out, 6000))
}

// kill -9 of any one of our processes at any time during the sale breaks no invariant, and every
// request answered 202 reaches a final state (C-14, R-290).
func TestAnyProcessMayDie(t *testing.T) {
	p := start(t, "--cells", "2", "--edges", "2", "--restart")
	const limit = 600
	p.publish(sale{ID: "any-dies", Limit: limit, Reserve: 60, TTL: "8s"})
	stop := p.check()
	history := filepath.Join(t.TempDir(), "history.jsonl")
	done := p.load(t.Context(), "--campaign", "any-dies", "--sku", "phone-x", "--users", "4000", "--rate", "150",
		"--repeat", "0.1", "--second", "0.05", "--press", "2", "--pay", "0.8", "--cancel", "0.05", "--history", history, "--seed", "11")
	seed := uint64(20261129)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	victims := []string{"cell-1/p1", "edge-1", "cell-2/p1", "controlplane-1", "edge-2"}
	for round, code := 0, -1; code < 0; round++ {
		select {
		case code = <-done:
			if code != 0 {
				t.Errorf("load: exit %d", code)
			}
		default:
			testkit.Hold(t, time.Duration(500+r.IntN(2000))*time.Millisecond, "a random moment of the sale")
			if round < 10 {
				p.kill(victims[round%len(victims)])
			}
		}
	}
	p.allReady()
	p.quiet("any-dies")
	stop()
	p.must("verify", "--campaign", "any-dies", "--history", history, "--timeout", "120s")
	if s := p.sold("any-dies/phone-x"); s.reserved+s.confirmed > limit || s.granted > limit-60 {
		t.Errorf("shards: %s", s)
	}
}

// K01, K08: a cell is frozen in mid-sale with requests under way, fenced, reclaimed; others sell its
// units out; when it wakes up it writes nothing and says so; and restored, its customers can pay.
func TestFrozenCellWakesUpFenced(t *testing.T) {
	p := start(t, "--cells", "3", "--restart")
	const limit = 300
	p.publish(sale{ID: "frozen", Limit: limit, Reserve: 0, TTL: "30s"})
	stop := p.check()
	history := filepath.Join(t.TempDir(), "history.jsonl")
	load := func(prefix string, users int) <-chan int {
		return p.load(t.Context(), "--campaign", "frozen", "--sku", "phone-x", "--users", fmt.Sprint(users), "--rate", "200", "--pay", "1", "--press", "0",
			"--history", history+"."+prefix, "--seed", fmt.Sprint(len(prefix)), "--prefix", prefix, "--patience", "20s")
	}
	first := load("early", 120)
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := p.sold("frozen/phone-x"); s.reserved+s.confirmed < 20 {
			return fmt.Errorf("only %s", s)
		}
		return nil
	})
	if _, err := p.Kill(t.Context(), "cell-2", platform.STOP); err != nil {
		t.Fatal(err)
	}
	p.must("cell", "fence", "cell-2", "--force", "--reclaim", "--top-up", "--reason", "frozen by a test", "--yes", "--timeout", "60s")
	if code := <-first; code != 0 {
		t.Errorf("load: exit %d", code)
	}
	// Everybody else's homes sell all that is left.
	if code := <-load("late", 1500); code != 0 {
		t.Errorf("load: exit %d", code)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := p.sold("frozen/phone-x"); s.reserved+s.confirmed != limit {
			return fmt.Errorf("%s of %d", s, limit)
		}
		return nil
	})
	if _, err := p.Kill(t.Context(), "cell-2", platform.CONT); err != nil {
		t.Fatal(err)
	}
	testkit.Hold(t, 3*time.Second, "the woken cell tries what it had in hand")
	if s := p.sold("frozen/phone-x"); s.reserved+s.confirmed != limit || s.granted != limit {
		t.Errorf("after the cell woke up: %s", s)
	}
	p.must("cell", "restore", "cell-2", "--reason", "awake", "--timeout", "60s")
	p.allReady()
	p.quiet("frozen")
	stop()
	for _, prefix := range []string{"early", "late"} {
		p.must("verify", "--campaign", "frozen", "--history", history+"."+prefix, "--timeout", "120s")
	}
}
