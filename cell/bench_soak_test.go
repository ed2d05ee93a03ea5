package cell

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/client"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	soakSamples = 10
	burstFactor = 20
	burstTime   = 20 * time.Second
	soakQuiet   = 20 * time.Second // after a burst, in which its orders are committed
	soakAfter   = 5                // part of the time at the steady rate after that, before it is judged
)

// BenchmarkMemory: resident memory and goroutines of one cellquotad, the program, while
// it is offered 1,500 requests a second, and after a burst of 20 times that; and what a
// request that is kept takes in Redis. Flat is 1. BENCH_SOAK says for how long; a minute
// by itself, ten in `make bench-soak`.
func BenchmarkMemory(b *testing.B) {
	long := time.Minute
	if text := os.Getenv("BENCH_SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			b.Fatal("BENCH_SOAK: ", err)
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), long+10*time.Minute)
	b.Cleanup(cancel)
	w := newWorldOn(b, ctx, testkit.OwnPostgres(b, durable).PG, testkit.Redis(b, "--appendonly", "yes", "--appendfsync", "everysec"))
	d := w.daemon()
	w.install(1)
	w.grant(1, plenty)
	d.stocked(plenty)
	user := 0
	for b.Loop() {
		d.offer(&user, steadyRate, 5*time.Second) // pools, caches and heap find their size
		before, kept := w.redisMemory(), user
		first := d.footprint()
		accepted := 0
		for range soakSamples {
			told := d.offer(&user, steadyRate, long/soakSamples)
			accepted += told[pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED]
			b.Logf("%v: %s, %d users", told, d.footprint(), user)
		}
		last := d.footprint()
		testkit.Hold(b, 5*time.Second, "the last orders reach the mirror")
		b.ReportMetric(float64(w.redisMemory()-before)/float64(max(accepted, 1)), "redis-B/request")
		told := d.offer(&user, burstFactor*steadyRate, burstTime)
		b.Logf("burst: %v: %s", told, d.footprint())
		testkit.Hold(b, soakQuiet, "the burst's orders are committed")
		d.offer(&user, steadyRate, long/soakAfter) // an idle process collects no garbage
		after := d.footprint()
		b.Logf("%s, then %s, after the burst %s; %d users", first, last, after, user-kept)
		b.ReportMetric(last.resident/first.resident, "x-resident")
		b.ReportMetric(after.resident/first.resident, "x-resident-after-burst")
		b.ReportMetric(after.heap/first.heap, "x-heap-after-burst")
		b.ReportMetric(last.goroutines/first.goroutines, "x-goroutines")
		b.ReportMetric(after.goroutines/first.goroutines, "x-goroutines-after-burst")
		b.ReportMetric(last.resident/(1<<20), "MiB")
		b.ReportMetric(last.goroutines, "goroutines")
		b.ReportMetric(float64(accepted)/long.Seconds(), "accepted-per-s")
	}
	b.ReportMetric(0, "ns/op")
}

// daemon is cellquotad in a process of its own, with an edge's connection to it.
type daemon struct {
	*process
	pid     int
	metrics string
}

// daemon builds the program, starts it in this world and waits until it serves.
func (w *world) daemon() *daemon {
	w.t.Helper()
	program := filepath.Join(w.t.TempDir(), "cellquotad")
	if out, err := exec.CommandContext(w.ctx, "go", "build", "-o", program, "../cmd/cellquotad").CombinedOutput(); err != nil {
		w.t.Fatalf("build cellquotad: %v\n%s", err, out)
	}
	grpc, metrics := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(w.t)), fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(w.t))
	args := append(append([]string{"cell"}, w.arguments()...), calm...)
	cmd := exec.CommandContext(w.ctx, program, append(args, "--grpc-addr="+grpc, "--metrics-addr="+metrics)...)
	cmd.Stderr = os.Stderr
	if os.Getenv("CELL_TEST_LOG") == "" {
		cmd.Stderr = nil
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.must(cmd.Start())
	w.t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	d := &daemon{process: &process{w: w}, pid: cmd.Process.Pid, metrics: "http://" + metrics}
	testkit.Eventually(w.t, patience, func() error {
		text, err := d.get("/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	var err error
	d.client, err = client.Dial(grpc, transport.DialOptions{Dev: true, Workload: "edge/e1", DefaultTimeout: 10 * time.Second})
	w.must(err)
	w.t.Cleanup(func() { _ = d.client.Close() })
	return d
}

func (d *daemon) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(d.w.ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.metrics+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var text strings.Builder
	if _, err := bufio.NewReader(response.Body).WriteTo(&text); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return text.String(), fmt.Errorf("%s answers %s", path, response.Status)
	}
	return text.String(), nil
}

// footprint is what a process takes up.
type footprint struct{ resident, heap, goroutines float64 }

func (f footprint) String() string {
	return fmt.Sprintf("%.0f MiB resident, %.0f MiB heap, %.0f goroutines", f.resident/(1<<20), f.heap/(1<<20), f.goroutines)
}

func (d *daemon) footprint() footprint {
	d.w.t.Helper()
	text, err := d.get("/metrics")
	d.w.must(err)
	read := func(name string) float64 {
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
		if found == nil {
			d.w.t.Fatalf("no %s", name)
		}
		value, err := strconv.ParseFloat(found[1], 64)
		d.w.must(err)
		return value
	}
	return footprint{read("process_resident_memory_bytes"), read("go_memstats_heap_inuse_bytes"), read("go_goroutines")}
}

// redisMemory is what Redis has allocated.
func (w *world) redisMemory() int64 {
	w.t.Helper()
	info, err := w.redis.Client(w.t).Info(w.ctx, "memory").Result()
	w.must(err)
	found := regexp.MustCompile(`(?m)^used_memory:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		w.t.Fatal("no used_memory")
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	w.must(err)
	return n
}
