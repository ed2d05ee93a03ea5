//go:build system || chaos

package system

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/testkit"
)

// hurt is one fault of cell-1 during a running sale, and what it may look like from outside.
type hurt struct {
	name string
	do   func(w *wired)
	// end is heal, unless given.
	end  func(w *wired)
	hold time.Duration
	// told are answers that cell-1's customers may get until all is well, beside 202 and what a gate that
	// is cut or still rising says; of must at least one has to be seen, or the fault was none.
	told []string
	must []string
	// shared faults hurt the other cell too.
	shared bool
	// back is how long after its end a new customer of cell-1 may have to wait for a 202.
	back time.Duration
}

// Refusals of a cell that cannot sell just now: each tells the customer to come again.
var (
	paused    = []string{"503 PAUSED", "503 NOT_READY"}
	away      = []string{"503 HOME_CELL_UNAVAILABLE"}
	throttled = []string{"429 THROTTLED", "429 QUEUE_FULL"}
)

// hurts is the table of architecture §8, and the faults that a platform of
// processes can show. Which of them hold for how long is the caller's.
func hurts(short time.Duration) []hurt {
	return []hurt{
		{
			name: "R-193: Redis refuses connections", hold: short, back: 10 * time.Second,
			do: func(w *wired) { w.redis.Break() }, must: paused,
		},
		{
			name: "R-276: Redis's answers are lost", hold: short, back: 10 * time.Second,
			do: func(w *wired) { w.redis.Silence(toClient) }, must: paused,
		},
		{
			name: "R-276: Redis is 40 ms away", hold: short, back: 5 * time.Second,
			do: func(w *wired) { w.redis.Delay(40 * time.Millisecond) }, told: paused,
		},
		{
			name: "R-276: connections to Redis are reset again and again", hold: 200 * time.Millisecond, back: 10 * time.Second,
			do:   again((*wired).resetRedis, 6, 200*time.Millisecond),
			told: paused,
		},
		{
			name: "R-123: Redis comes back without its data", hold: time.Second, back: 20 * time.Second,
			do:   (*wired).loseRedis,
			end:  func(w *wired) { w.started("cell-1/redis") },
			must: paused,
		},
		restarted("R-276: Redis dies and is started again", "cell-1/redis", false),
		restarted("R-276: the broker dies and is started again", "kafka", true),
		restarted("R-276: PostgreSQL dies and is started again", "cell-1/postgres", false),
		{
			name: "R-194: Kafka is gone for 5 s", hold: 5 * time.Second, back: 15 * time.Second, shared: true,
			do: func(w *wired) { w.kafka.Break() }, told: paused,
		},
		{
			name: "R-120: Kafka's acknowledgements are lost", hold: short, back: 15 * time.Second, shared: true,
			do: func(w *wired) { w.kafka.Silence(toClient) }, told: paused,
		},
		{
			name: "R-276: connections to Kafka are reset again and again", hold: 200 * time.Millisecond, back: 10 * time.Second, shared: true,
			do: again((*wired).resetKafka, 6, 200*time.Millisecond), told: paused,
		},
		{
			name: "R-196: PostgreSQL is gone for a while", hold: short, back: 10 * time.Second,
			do: func(w *wired) { w.shard.Break() }, told: paused,
		},
		{
			name: "R-196: PostgreSQL is slow, each statement 30 ms", hold: short, back: 10 * time.Second,
			do: func(w *wired) { w.shard.Delay(15 * time.Millisecond) }, told: paused,
		},
		{
			name: "R-276: connections to PostgreSQL are reset again and again", hold: 200 * time.Millisecond, back: 10 * time.Second,
			do: again((*wired).resetShard, 6, 200*time.Millisecond), told: paused,
		},
		{
			name: "R-119: the cell's process dies with admissions that only Redis has", hold: time.Second, back: 30 * time.Second, shared: true,
			do:   (*wired).dieUnpublished,
			end:  func(w *wired) { w.heal(); w.started("cell-1/p1") },
			must: slices.Concat(away, paused),
		},
		{
			name: "R-121: the cell's process dies before it hears of its commits", hold: time.Second, back: 30 * time.Second,
			do:   (*wired).dieCommitted,
			end:  func(w *wired) { w.heal(); w.started("cell-1/p1") },
			must: slices.Concat(away, paused),
		},
		{
			name: "R-125: the control plane is cut off", hold: short, back: 2 * time.Second,
			do: func(w *wired) { w.plane.Break() },
		},
		{
			name: "R-276: the cell is 100 ms away from the edge", hold: short, back: 5 * time.Second,
			do: func(w *wired) { w.door.Delay(100 * time.Millisecond) }, told: paused,
		},
		{
			name: "R-276: the cell's answers to the edge are lost", hold: short, back: 20 * time.Second,
			do: func(w *wired) { w.door.Silence(toClient) }, must: slices.Concat(away, paused),
		},
		{
			name: "R-276: connections from the edge are reset again and again", hold: 200 * time.Millisecond, back: 5 * time.Second,
			do: again((*wired).resetDoor, 6, 200*time.Millisecond), told: slices.Concat(away, paused),
		},
		{
			name: "K58: 500 customers close their connections", back: 5 * time.Second,
			do: func(w *wired) { w.choir.hangUp(500) },
		},
	}
}

// restarted is a store that is killed (SIGKILL) and started again by its operator.
func restarted(name, process string, shared bool) hurt {
	return hurt{
		name: name, hold: 500 * time.Millisecond, back: 30 * time.Second, shared: shared, told: paused,
		do:  func(w *wired) { w.down(process) },
		end: func(w *wired) { w.started(process) },
	}
}

func (w *wired) resetRedis() { w.redis.Reset() }
func (w *wired) resetKafka() { w.kafka.Reset() }
func (w *wired) resetShard() { w.shard.Reset() }
func (w *wired) resetDoor()  { w.door.Reset() }

// again repeats a moment's fault, with time between for the victim to come back.
func again(do func(*wired), times int, between time.Duration) func(*wired) {
	return func(w *wired) {
		for range times {
			do(w)
			testkit.Hold(w.t, between, "until the next reset")
		}
	}
}

// loseRedis kills the cell's Redis and takes its append-only file away: what it admitted is gone.
func (w *wired) loseRedis() {
	w.down("cell-1/redis")
	if err := os.RemoveAll(filepath.Join(w.dir, "data", "cell-1/redis", "appendonlydir")); err != nil {
		w.t.Fatal(err)
	}
}

// dieUnpublished lets the log hear nothing, so that admissions are in Redis alone, and then kills the cell.
func (w *wired) dieUnpublished() {
	w.kafka.Silence(toServer)
	testkit.Hold(w.t, 700*time.Millisecond, "admissions that only Redis has")
	w.down("cell-1/p1")
}

// dieCommitted lets commits happen and their answers be lost, and then kills the cell.
func (w *wired) dieCommitted() {
	w.shard.Silence(toClient)
	testkit.Hold(w.t, 300*time.Millisecond, "commits that nobody hears of")
	w.down("cell-1/p1")
}

// suffer lets every hurt happen in one running sale, one after the other, and judges what customers were
// told: of the hurt cell never that something is sold out, never a 500, never nothing at all; of the other
// cell nothing but 202, unless the fault is of what they share. Then the sale must go on by itself, and after
// quiet every invariant hold, the ledgers of the mirror too (I9).
func (w *wired) suffer(campaign string, list []hurt) {
	w.publish(sale{ID: campaign, Limit: 40_000, Reserve: 0, TTL: "15s"})
	stop := w.check()
	choir, voices, silence := w.sing(campaign, 25*time.Millisecond)
	defer silence()
	w.choir = choir
	load := filepath.Join(w.t.TempDir(), "load.jsonl")
	ctx, end := context.WithCancel(w.t.Context())
	defer end()
	done := w.load(ctx, "--campaign", campaign, "--sku", "phone-x", "--users", "100000", "--rate", "60", "--repeat", "0.1", "--second", "0.05", "--press", "2",
		"--pay", "0.7", "--cancel", "0.1", "--patience", "30s", "--history", load, "--seed", "5", "--prefix", "crowd")
	testkit.Eventually(w.t, 15*time.Second, func() error { return choir.sells(time.Time{}) })
	for _, h := range list {
		if !w.t.Run(h.name, func(t *testing.T) { w.suffered(t, choir, h) }) {
			w.heal()
		}
	}
	end()
	<-done
	silence()
	w.allReady()
	w.quiet(campaign)
	stop()
	for _, file := range []string{voices, load} {
		w.polite(file)
		w.must("verify", "--campaign", campaign, "--history", file, "--timeout", "120s")
	}
}

// polite reads what every customer was told, payers and repeats too: never a 500, never that something is
// sold out, and the same again gets the same again.
func (w *wired) polite(file string) {
	f, err := os.Open(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rude := map[string]int{}
	for r, err := range history.Read(f) {
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Status == 500 || r.Status == 502 || strings.HasSuffix(r.Code, "SOLD_OUT") || r.Code == "PERMIT_INVALID" && !strings.HasSuffix(r.Request, "-2") {
			rude[fmt.Sprintf("%s %d %s", r.Op, r.Status, r.Code)]++
		}
	}
	if len(rude) > 0 {
		w.t.Errorf("customers were told %s", told(rude))
	}
}

// A gate has risen again, doubling from step to step, within risen; a cell is calm when everybody was
// accepted for calmFor.
const (
	risen   = 30 * time.Second
	calmFor = time.Second
)

// suffered is one hurt from beginning to end.
func (w *wired) suffered(t *testing.T, choir *choir, h hurt) {
	from := time.Now()
	h.do(w)
	if h.hold > 0 {
		testkit.Hold(t, h.hold, h.name)
	}
	healed := time.Now()
	if h.end != nil {
		h.end(w)
	} else {
		w.heal()
	}
	testkit.Eventually(t, h.back, func() error { return choir.sells(healed) })
	back := time.Now()
	testkit.Eventually(t, risen, func() error { return choir.calm(time.Now().Add(-calmFor)) })
	mine, others := choir.between("cell-1", from, time.Now()), choir.between("cell-2", from, time.Now())
	t.Logf("held %s, sold again %s after its end, everything %s later\ncell-1: %s\ncell-2: %s",
		healed.Sub(from).Round(time.Millisecond), back.Sub(healed).Round(time.Millisecond), time.Since(back).Round(time.Millisecond), told(mine), told(others))
	excused := slices.Concat(throttled, h.told, h.must)
	judge(t, "cell-1", mine, excused)
	if len(h.must) > 0 && !slices.ContainsFunc(h.must, func(what string) bool { return mine[what] > 0 }) {
		t.Errorf("cell-1's customers were told none of %v: was there a fault?", h.must)
	}
	if h.shared {
		judge(t, "cell-2", others, excused)
		return
	}
	judge(t, "cell-2", others, throttled) // a busy machine slows it too, but not much
	if slow := others[throttled[0]] + others[throttled[1]]; slow > sum(others)/2 {
		t.Errorf("%d of %d of cell-2's customers were told to wait", slow, sum(others))
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// judge names every answer that is neither 202 nor among those that a fault excuses.
func judge(t *testing.T, cell string, counts map[string]int, excused []string) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(excused, what) && what[:3] != "202" {
			t.Errorf("%s's customers were told %s (%d times)", cell, what, counts[what])
		}
	}
}
