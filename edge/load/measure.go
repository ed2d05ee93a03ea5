package load

import (
	"sort"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Stage names what a latency is of.
type Stage string

// The stages of a visit.
const (
	StagePermit   Stage = "permit"
	StageRequest  Stage = "request" // from the planned start of the visit's first try, its permit excluded
	StageCall     Stage = "call"    // one try to buy, from its own start: what the platform took
	StageStatus   Stage = "status"
	StageOrdered  Stage = "ordered" // from the 202 to the first status that showed an order
	StagePayment  Stage = "payment"
	StageCallback Stage = "callback"
)

// Stages lists them in the order of a visit.
var Stages = []Stage{StagePermit, StageRequest, StageCall, StageStatus, StageOrdered, StagePayment, StageCallback}

// Latency of one stage in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p99_9_ms"`
	Max   float64 `json:"max_ms"`
}

// Counts is how often each answer came, "OP CODE"; a success is "OP 202 QUEUED" or so.
type Counts map[string]int64

// Sorted lists the answers, most frequent first.
func (c Counts) Sorted() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if c[keys[i]] != c[keys[j]] {
			return c[keys[i]] > c[keys[j]]
		}
		return keys[i] < keys[j]
	})
	return keys
}

// Snapshot of a run so far.
type Snapshot struct {
	Started   int64 `json:"started"`
	Finished  int64 `json:"finished"`
	Active    int64 `json:"active"`
	Accepted  int64 `json:"accepted"`
	Ordered   int64 `json:"ordered"`
	Paid      int64 `json:"paid"`
	Cancelled int64 `json:"cancelled"`
	Unknown   int64 `json:"unknown"`
	SoldOut   int64 `json:"sold_out"`
	GaveUp    int64 `json:"gave_up"`
}

const maxMicros = int64(10 * 60 * 1_000_000)

// meter gathers counts and latencies of many customers.
type meter struct {
	mu      sync.Mutex
	counts  Counts
	stages  map[Stage]*hdrhistogram.Histogram
	now     Snapshot
	first   time.Time // first and last sight of an order
	last    time.Time
	ordered map[int64]int64 // orders first seen, per second since the start
}

func newMeter() *meter {
	return &meter{counts: Counts{}, stages: map[Stage]*hdrhistogram.Histogram{}, ordered: map[int64]int64{}}
}

func (m *meter) answer(key string) {
	m.mu.Lock()
	m.counts[key]++
	m.mu.Unlock()
}

func (m *meter) took(s Stage, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.stages[s]
	if h == nil {
		h = hdrhistogram.New(1, maxMicros, 3)
		m.stages[s] = h
	}
	_ = h.RecordValue(min(max(d.Microseconds(), 1), maxMicros)) // within bounds by construction
}

func (m *meter) tally(change func(*Snapshot)) {
	m.mu.Lock()
	change(&m.now)
	m.mu.Unlock()
}

func (m *meter) order(at time.Time, start time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Ordered++
	if m.first.IsZero() {
		m.first = at
	}
	m.last = at
	m.ordered[int64(at.Sub(start)/time.Second)]++
}

func (m *meter) snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *meter) latencies() map[Stage]Latency {
	out := map[Stage]Latency{}
	for s, h := range m.stages {
		at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
		out[s] = Latency{Count: h.TotalCount(), P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000}
	}
	return out
}
