package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/edge/load"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestSettings(t *testing.T) {
	s, err := FromEnvironment(env())
	if err != nil || s.Users != 100_000 || s.Stock != 10_000 || s.Cells != 4 || s.Keep {
		t.Errorf("defaults %+v, %v", s, err)
	}
	s, err = FromEnvironment(env("DEMO_USERS", "5000", "DEMO_STOCK", "700", "DEMO_CELLS", "2", "DEMO_KEEP", "1", "DEMO_REPORT", "r.json", "DEMO_KAFKA", "apache"))
	if err != nil || s.Users != 5000 || s.Stock != 700 || s.Cells != 2 || !s.Keep || s.ReportFile != "r.json" || s.Kafka != "apache" {
		t.Errorf("given %+v, %v", s, err)
	}
	for _, bad := range [][]string{{"DEMO_USERS", "99"}, {"DEMO_USERS", "1e5"}, {"DEMO_STOCK", "-1"}, {"DEMO_CELLS", "1"}, {"DEMO_CELLS", "17"}, {"DEMO_KEEP", "yes"}, {"DEMO_KAFKA", "x"}} {
		if _, err := FromEnvironment(env(bad...)); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), bad[0]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// witnessOf makes a witness that samples nothing by itself.
func witnessOf(clk clock.Clock) *witness {
	w := &witness{clk: clk, key: core.BookKey{Campaign: "demo", SKU: "phone-x"}, news: make(chan struct{})}
	w.said.broken = map[verify.Invariant]int64{}
	return w
}

func sample(granted, confirmed int64) verify.Sample {
	key := core.BookKey{Campaign: "demo", SKU: "phone-x"}
	return verify.Sample{Shards: map[ids.CellID]map[core.BookKey]shards.Stock{
		"cell-1": {key: {Granted: granted, Confirmed: confirmed, Reserved: 1}},
		"cell-2": {key: {Granted: 50, Confirmed: 5}},
	}}
}

func TestWitnessMeasuresFromTheCommand(t *testing.T) {
	start := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	clk := clock.NewManual(start)
	w := witnessOf(clk)
	for _, granted := range []int64{100, 100, 140, 150, 150} {
		w.note(sample(granted, 10), nil)
		clk.Advance(100 * time.Millisecond)
	}
	l, ok := w.firstSince(start.Add(100*time.Millisecond), func(l look) bool { return l.granted(but("cell-2")) >= 150 })
	if !ok || l.at.Sub(start) != 300*time.Millisecond {
		t.Errorf("first look at %s, %v; want 300ms", l.at.Sub(start), ok)
	}
	if got := l.sold(every); got != 16 {
		t.Errorf("sold %d, want 16", got)
	}
	if _, ok := w.firstSince(start, func(look) bool { return false }); ok {
		t.Error("a look that nobody took was found")
	}
}

func TestWitnessWaitsForALook(t *testing.T) {
	clk := clock.NewManual(time.Unix(0, 0))
	w := witnessOf(clk)
	found := make(chan bool, 1)
	go func() {
		_, ok := w.await(t.Context(), time.Minute, func(l look) bool { return l.granted(every) >= 150 })
		found <- ok
	}()
	if err := clk.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.note(sample(10, 0), nil)
	w.note(sample(100, 0), nil)
	if !<-found {
		t.Error("the look that passes was not seen")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := w.await(ctx, time.Minute, func(look) bool { return false }); ok {
		t.Error("nothing passes")
	}
}

func TestWitnessKeepsWhatItSaw(t *testing.T) {
	w := witnessOf(clock.NewManual(time.Unix(0, 0)))
	s := sample(1, 0)
	for range maxKept + 10 {
		s.Breaches = []verify.Breach{{Invariant: verify.I3, Cell: "cell-1", Detail: "too much"}}
		w.note(s, nil)
	}
	w.note(verify.Sample{}, errors.New("etcd is silent"))
	if w.said.Breaches != maxKept+10 || len(w.said.First) != maxKept || w.said.Missed != 1 || w.said.LastErr != "etcd is silent" || w.said.broken[verify.I3] != maxKept+10 {
		t.Errorf("said %+v", w.said)
	}
}

func TestSentence(t *testing.T) {
	clean := func() (*story, *pb.VerifyResponse) {
		st := &story{report: &Report{Witness: Testimony{Samples: 1, broken: map[verify.Invariant]int64{}}}}
		st.report.Ledger, _ = ledgerOf(sales(), "phone-x")
		return st, &pb.VerifyResponse{Ok: true, Checks: []*pb.Check{{Invariant: "I3", Verdict: pb.Verdict_VERDICT_OK, Detail: "1 SKU"}}}
	}
	st, v := clean()
	if err := st.sentence(v); err != nil || !st.report.OK || st.report.Invariants[0].Verdict != "OK" {
		t.Errorf("clean: %v %+v", err, st.report)
	}
	for name, step := range map[string]struct {
		change func(*story, *pb.VerifyResponse)
		want   error
	}{
		"breach": {func(_ *story, v *pb.VerifyResponse) { v.Breaches = []*pb.Breach{{Invariant: "I3"}} }, ErrBroken},
		"witness": {func(s *story, _ *pb.VerifyResponse) {
			s.report.Witness.First, s.report.Witness.Breaches, s.report.Witness.broken["I3"] = []string{"x"}, 1, 1
		}, ErrBroken},
		"table":       {func(s *story, _ *pb.VerifyResponse) { s.report.Ledger.Reserve++ }, ErrBroken},
		"unchecked":   {func(_ *story, v *pb.VerifyResponse) { v.Unchecked = []*pb.Unchecked{{Invariant: "I3"}} }, ErrUnchecked},
		"no witness":  {func(s *story, _ *pb.VerifyResponse) { s.report.Witness.Samples = 0 }, ErrUnchecked},
		"both: worse": {func(s *story, v *pb.VerifyResponse) { s.report.Ledger.Reserve++; v.Unchecked = []*pb.Unchecked{{}} }, ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			st, v := clean()
			step.change(st, v)
			if err := st.sentence(v); !errors.Is(err, step.want) || st.report.OK {
				t.Errorf("got %v, ok %v; want %v", err, st.report.OK, step.want)
			}
			if name == "witness" && st.report.Invariants[0].Verdict != "BROKEN" {
				t.Errorf("what the witness saw broken is %s", st.report.Invariants[0].Verdict)
			}
		})
	}
}

func TestReportIsWrittenAndShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	r := &Report{SKU: "phone-x", Fence: Fence{Cell: "cell-2", Reclaimed: 900, CommandToOnSaleMS: 412}, Latencies: map[load.Stage]load.Latency{load.StageRequest: {Count: 3, P50: 1.5}}, Answers: load.Counts{"request 202 QUEUED": 3}, Memory: []Peak{{"edge-1", 5 << 20}}}
	r.Ledger, _ = ledgerOf(sales(), "phone-x")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(text, &back); err != nil || back["ledger"] == nil {
		t.Errorf("report %s: %v", text, err)
	}
	var out bytes.Buffer
	for _, line := range r.lines() {
		out.WriteString(line + "\n")
	}
	r.unitTable().Write(&out, true)
	r.latencyTable().Write(&out, false)
	for _, want := range []string{"reserve 300 + allocated 9700 = 10000", "reserved 100 + confirmed 9500 + written off 0 = 10000", "412ms (900 units", "cell-2", "all cells        9700     9700", "sale limit      10000    10000", "request"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestHighWater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(file, []byte("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   1234 kB\nVmRSS:\t 8 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := highWater(file); !ok || got != 1234*1024 {
		t.Errorf("%d %v", got, ok)
	}
	if _, ok := highWater(file + "x"); ok {
		t.Error("a process that is gone has no mark")
	}
}

func TestCampaignIsWhatTheDemoSays(t *testing.T) {
	s := Settings{Stock: 10000}
	text := campaignYAML("demo", "phone-x", s, []string{"cell-1", "cell-2"}, time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC))
	for _, want := range []string{"open_at: 2026-11-10T23:59:00Z", "close_at: 2026-11-11T01:00:00Z", "sale_limit: 10000", `reserve: "4%"`, "cells: [cell-1, cell-2]", "reservation_ttl: 30s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
