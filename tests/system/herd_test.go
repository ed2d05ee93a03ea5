//go:build chaos

package system

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// K44: about twenty times of what the cells can settle comes at the opening, for 10 s, and again right when
// Redis is back after 20 s. A cell is made slow on purpose (each statement 40 ms, ten orders a batch), so that
// the herd is the cell's and not the machine's. What waits is bounded by the gate, goroutines and memory are
// bounded and come down again, refusals say when to come back and not all the same, and whoever is accepted
// is answered in time. While fewer are settled than come, the age of the oldest stays below the limit;
// and what comes at once when Redis is back meets the same bound.
func TestChaosHerd(t *testing.T) {
	const capacity, herd = 60, 500
	w := startWired(t, 2, "--restart", "--set", "cell.payment.attempt_grace=2s", "--set", "cell.gate.capacity="+fmt.Sprint(capacity), "--set", "cell.orders.batch_max=10")
	w.publish(sale{ID: "herd", Limit: 40_000, Reserve: 0, TTL: "20s"})
	stop := w.check()
	before := w.figures()
	watch, end := context.WithCancel(t.Context())
	most := w.most(watch)
	choir, voices, silence := w.sing("herd", 25*time.Millisecond)
	defer silence()
	w.shard.Delay(20 * time.Millisecond)
	opened := time.Now()
	opening, over := context.WithCancel(t.Context())
	oldest := w.most(opening)
	if code := <-w.herd(1, herd, 10*time.Second); code != 0 {
		t.Errorf("load: exit %d", code)
	}
	over()
	if age := (<-oldest)["cell-1 cellquota_oldest_unsettled_age_seconds"]; age == 0 || age > pauseAfter {
		t.Errorf("R-124: an admission of cell-1 waited for %v s, nothing may be admitted above %v s", age, pauseAfter)
	}
	w.redis.Break()
	testkit.Hold(t, 20*time.Second, "Redis is down, and the herd gathers")
	w.redis.Heal()
	back := time.Now()
	if code := <-w.herd(2, herd, 10*time.Second); code != 0 {
		t.Errorf("load: exit %d", code)
	}
	w.shard.Heal()
	testkit.Eventually(t, time.Minute, func() error { return choir.calm(time.Now().Add(-2 * time.Second)) })
	silence()
	end()
	peaks := <-most
	for name, cell := range choir.voices {
		cell.judgeRefusals(t, name)
		cell.judgeWaits(t, name, 5*time.Second)
	}
	t.Logf("cell-1's customers at the opening: %s\nwhen Redis was back: %s", told(choir.between("cell-1", opened, back)), told(choir.between("cell-1", back, time.Now())))
	judge(t, "cell-1", choir.between("cell-1", opened, time.Now()), append(paused, throttled...))
	w.allReady()
	w.quiet("herd")
	stop()
	w.must("verify", "--campaign", "herd", "--history", voices, "--timeout", "120s")

	if n := peaks["cell-1 cellquota_admission_outstanding"]; n == 0 || n > 2*capacity {
		t.Errorf("%v admissions waited in cell-1 at most, the gate's capacity is %d", n, capacity)
	}
	testkit.Eventually(t, time.Minute, func() error {
		after := w.figures()
		for name, n := range after {
			if strings.HasSuffix(name, " go_goroutines") && n > 2*before[name]+100 {
				return fmt.Errorf("%s: %v before, %v at most, %v now", name, before[name], peaks[name], n)
			}
		}
		return nil
	})
	for name, n := range w.figures() {
		t.Logf("%s: %.0f before, %.0f at most, %.0f now", name, before[name], peaks[name], n)
		if strings.HasSuffix(name, " process_resident_memory_bytes") && peaks[name] > before[name]+400<<20 {
			t.Errorf("%s grew to %.0f", name, peaks[name])
		}
		if strings.HasSuffix(name, " go_goroutines") && peaks[name] > 20_000 {
			t.Errorf("%s grew to %.0f", name, peaks[name])
		}
	}
}

// pauseAfter is gate.pause_after's default in seconds: the age at which nothing more is admitted.
const pauseAfter = 15

// herd lets customers come at a rate, open loop; those who are told to wait try twice more.
func (w *wired) herd(number, rate int, length time.Duration) <-chan int {
	return w.load(w.t.Context(), "--campaign", "herd", "--sku", "phone-x", "--rate", fmt.Sprint(rate), "--users", fmt.Sprint(rate*int(length.Seconds())), "--press", "2",
		"--pay", "0", "--patience", "30s", "--history", filepath.Join(w.t.TempDir(), "herd.jsonl"), "--seed", fmt.Sprint(number), "--prefix", fmt.Sprintf("herd%d", number))
}

// judgeRefusals: every refusal says when to come back, and they do not all say the same.
func (v *voice) judgeRefusals(t *testing.T, cell string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	waits, refused := map[time.Duration]int{}, 0
	for _, h := range v.heard {
		if h.status != 429 && h.status != 503 {
			continue
		}
		refused++
		waits[h.after]++
	}
	t.Logf("%s: %d refusals with %d different times to wait", cell, refused, len(waits))
	if waits[0] > 0 {
		t.Errorf("%s: %d of %d refusals do not say when to come back", cell, waits[0], refused)
	}
	if refused > 50 && len(waits) < 20 {
		t.Errorf("%s: %d refusals have %d different times to wait", cell, refused, len(waits))
	}
}

// judgeWaits: of those who were accepted nearly all were answered in time.
func (v *voice) judgeWaits(t *testing.T, cell string, within time.Duration) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	accepted, late := 0, 0
	for _, h := range v.heard {
		if h.status == 202 {
			accepted++
			if h.until.Sub(h.at) > within {
				late++
			}
		}
	}
	if accepted == 0 || late*100 > accepted {
		t.Errorf("%s: %d of %d who were accepted waited for more than %s", cell, late, accepted, within)
	}
}

// figures are what every cell and edge process says of itself: "PROCESS METRIC" → value, summed over labels.
func (p *local) figures() map[string]float64 {
	p.t.Helper()
	e, out := p.endpoints(), map[string]float64{}
	for i, edge := range e.Edges {
		scrape(edge.Metrics, fmt.Sprintf("edge-%d", i+1), out)
	}
	for _, cell := range e.Cells {
		scrape(cell.Metrics, cell.CellID, out)
	}
	return out
}

var scraped = []string{"go_goroutines", "process_resident_memory_bytes", "cellquota_admission_outstanding", "cellquota_oldest_unsettled_age_seconds"}

// scrape adds a process's metrics; one that does not answer just now adds none.
func scrape(url, process string, into map[string]float64) {
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		return
	}
	defer func() { _ = answer.Body.Close() }()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		for _, name := range scraped {
			if rest, ok := strings.CutPrefix(lines.Text(), name); ok && (rest[0] == ' ' || rest[0] == '{') {
				if n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
					into[process+" "+name] += n
				}
			}
		}
	}
}

// most looks at the figures until ctx ends, and gives the highest of each.
func (p *local) most(ctx context.Context) <-chan map[string]float64 {
	out := make(chan map[string]float64, 1)
	var once sync.WaitGroup
	once.Go(func() {
		tick := clock.System().NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		peaks := map[string]float64{}
		for ctx.Err() == nil {
			for name, n := range p.figures() {
				peaks[name] = max(peaks[name], n)
			}
			select {
			case <-ctx.Done():
			case <-tick.C():
			}
		}
		out <- peaks
	})
	return out
}
