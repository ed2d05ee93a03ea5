package supply_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/internal/ids"
)

var (
	q     = quantity.Must
	noon  = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)
	rules = supply.Rules{Now: noon, StaleAfter: 5 * time.Second, Horizon: time.Minute}
)

// selling is a cell that takes part: 1,000 granted, the given units available, and a demand of so many within
// the horizon.
func selling(n int, available, need int64) supply.Position {
	id := ids.CellID(fmt.Sprintf("cell-%d", n))
	return supply.Position{
		Cell: core.Cell{Spec: core.CellSpec{ID: id}, FenceVersion: 2}, State: core.CellActive, Owns: true, Reported: true,
		Allocation: core.Allocation{Cell: id, Granted: q(1_000), FirstGrant: q(1_000), FenceVersion: 2, LastNumber: 3},
		Report: supply.Report{
			Stock: core.StockFacts{Available: q(available), AdjustmentVersion: 2, LastNumber: 3}, FenceVersion: 2, At: noon.Add(-time.Second),
			Rate: supply.Rate{Units: need, Over: time.Minute},
		},
	}
}

func book(reserve int64) core.Book {
	return core.Book{Key: core.BookKey{Campaign: "c", SKU: "s"}, Reserve: q(reserve)}
}

// Every row of the table in the package's comment.
func TestStanding(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*supply.Position)
		want  allocator.Standing
		why   string
	}{
		{"it takes part", func(*supply.Position) {}, allocator.Selling, ""},
		{"draining", func(p *supply.Position) { p.State = core.CellDraining }, allocator.Frozen, "DRAINING"},
		{"suspect", func(p *supply.Position) { p.State = core.CellSuspect }, allocator.Frozen, "SUSPECT"},
		{"paused by an operator", func(p *supply.Position) { p.Cell.Paused = true }, allocator.Frozen, "paused"},
		{"a proof that is not booked", func(p *supply.Position) { p.Cell.ProofID = "p" }, allocator.Frozen, "proved"},
		{"a proof that is booked", func(p *supply.Position) { p.Cell.ProofID, p.Cell.Reclaimed = "p", true }, allocator.Selling, ""},
		{"barred", func(p *supply.Position) { p.Barred = "not compared" }, allocator.Frozen, "not compared"},
		{"no report", func(p *supply.Position) { p.Reported = false }, allocator.Frozen, "no report"},
		{"a report just fresh", func(p *supply.Position) { p.Report.At = noon.Add(-5 * time.Second) }, allocator.Selling, ""},
		{"a stale report", func(p *supply.Position) { p.Report.At = noon.Add(-5*time.Second - time.Millisecond) }, allocator.Frozen, "5s old"},
		{"a report of another fence version", func(p *supply.Position) { p.Report.FenceVersion = 1 }, allocator.Frozen, "fence version 1"},
		{"an adjustment that is not applied", func(p *supply.Position) { p.Report.Stock.LastNumber = 2 }, allocator.Frozen, "adjustment 3"},
		{"a number of an older fence version", func(p *supply.Position) { p.Report.Stock.AdjustmentVersion = 1 }, allocator.Frozen, "adjustment 3"},
		{"an allocation of an older fence version", func(p *supply.Position) { p.Allocation.FenceVersion, p.Allocation.LastNumber = 1, 9 }, allocator.Selling, ""},
		{"more available than allocated", func(p *supply.Position) { p.Report.Stock.Available = q(1_001) }, allocator.Frozen, "1001"},
		{"home to nobody", func(p *supply.Position) { p.Owns = false }, allocator.Leaving, ""},
		{"home to nobody, and suspect", func(p *supply.Position) { p.Owns, p.State = false, core.CellSuspect }, allocator.Frozen, "SUSPECT"},
	} {
		p := selling(1, 500, 10)
		row.spoil(&p)
		got, why := p.Standing(rules)
		if got != row.want || !strings.Contains(why, row.why) || (why == "") != (row.why == "") {
			t.Errorf("%s: %v, %q", row.name, got, why)
		}
	}
}

// Only who is low, sells and is fit shares a round.
func TestTopUps(t *testing.T) {
	topUp := core.TopUpRules{Policy: core.AutoAuto, LowWaterPermille: 100, TranchePermille: 500}
	stale := selling(4, 0, 0)
	stale.Report.At = noon.Add(-time.Hour)
	homeless := selling(5, 0, 0)
	homeless.Owns = false
	plan, err := supply.TopUps(book(400), topUp, []supply.Position{selling(1, 100, 0), selling(2, 101, 0), selling(3, 0, 0), stale, homeless}, rules)
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, g := range plan.Grants {
		cells = append(cells, g.Cell)
	}
	slices.Sort(cells)
	if !slices.Equal(cells, []string{"cell-1", "cell-3"}) {
		t.Errorf("grants %+v", plan.Grants)
	}
	if plan, err := supply.TopUps(book(400), topUp, []supply.Position{selling(1, 101, 0)}, rules); err != nil || len(plan.Grants) != 0 {
		t.Errorf("nobody is low: %+v, %v", plan.Grants, err)
	}
}

func TestRebalance(t *testing.T) {
	homeless := selling(4, 70, 0)
	homeless.Owns = false
	unmeasured := selling(5, 900, 0)
	unmeasured.Report.Rate = supply.Rate{}
	frozen := selling(6, 900, 0)
	frozen.State = core.CellSuspect
	all := []supply.Position{selling(1, 800, 80), selling(2, 0, 100), selling(3, 20, 50), homeless, unmeasured, frozen}
	plan, err := supply.Rebalance(book(0), all, rules, false)
	if err != nil {
		t.Fatal(err)
	}
	// cell-2 lacks 100, cell-3 lacks 30; the homeless one gives all its 70, cell-1 the 60 that are missing.
	want := []string{"cell-1>cell-2 60", "cell-4>cell-2 40", "cell-4>cell-3 30"}
	var got []string
	for _, m := range plan.Moves {
		got = append(got, fmt.Sprintf("%s>%s %s", m.From, m.To, m.Units))
		if m.SKU != "s" || m.Why == "" {
			t.Errorf("%+v", m)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("moves %v, want %v", got, want)
	}
	if len(plan.Skipped) != 2 || !strings.Contains(plan.Skipped[0], "cell-5: its demand was not measured") || !strings.Contains(plan.Skipped[1], "cell-6: the cell is SUSPECT") {
		t.Errorf("skipped %q", plan.Skipped)
	}
	// Without the policy only what nobody could buy goes, to the reserve.
	leaving, err := supply.Rebalance(book(5), all, rules, true)
	if err != nil || len(leaving.Moves) != 1 || leaving.Moves[0].From != "cell-4" || leaving.Moves[0].To != "" || leaving.Moves[0].Units.Int64() != 70 {
		t.Errorf("leaving only: %+v, %v", leaving.Moves, err)
	}
	if none, err := supply.Rebalance(book(5), []supply.Position{frozen}, rules, false); err != nil || len(none.Moves) != 0 || len(none.Skipped) != 1 {
		t.Errorf("nobody: %+v, %v", none, err)
	}
}

// Whatever the numbers: no cell gives more than it has, gives and takes at once, or is named when it is left
// alone; nobody gives to itself; no taker ends above its need.
func TestRebalanceHoldsItsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []supply.Position
		for i := range rapid.IntRange(1, 6).Draw(t, "cells") {
			p := selling(i+1, rapid.Int64Range(0, 1_000).Draw(t, "available"), rapid.Int64Range(0, 1_500).Draw(t, "need"))
			p.Owns = rapid.IntRange(0, 4).Draw(t, "owns") > 0
			if rapid.IntRange(0, 4).Draw(t, "fit") == 0 {
				p.State = core.CellSuspect
			}
			all = append(all, p)
		}
		plan, err := supply.Rebalance(book(rapid.Int64Range(0, 100).Draw(t, "reserve")), all, rules, false)
		if err != nil {
			t.Fatal(err)
		}
		gives, takes := map[ids.CellID]int64{}, map[ids.CellID]int64{}
		for _, m := range plan.Moves {
			if m.From == "" || m.From == m.To || m.Units.IsZero() {
				t.Fatalf("%+v", m)
			}
			gives[m.From] += m.Units.Int64()
			if m.To != "" {
				takes[m.To] += m.Units.Int64()
			}
		}
		for _, p := range all {
			standing, _ := p.Standing(rules)
			has, need := p.Report.Stock.Available.Int64(), p.Report.Rate.Units
			gave, took := gives[p.ID()], takes[p.ID()]
			switch {
			case gave > 0 && took > 0, gave > has, standing == allocator.Frozen && gave+took > 0:
				t.Fatalf("%s gives %d of %d and takes %d", p.ID(), gave, has, took)
			case took > 0 && (standing != allocator.Selling || has+took > need):
				t.Fatalf("%s has %d, needs %d, takes %d", p.ID(), has, need, took)
			case standing == allocator.Leaving && gave != has:
				t.Fatalf("%s is home to nobody and keeps %d", p.ID(), has-gave)
			case standing == allocator.Selling && gave > 0 && has-gave < need:
				t.Fatalf("%s needs %d and keeps %d", p.ID(), need, has-gave)
			}
		}
	})
}

func TestNeed(t *testing.T) {
	for _, row := range []struct {
		rate    supply.Rate
		horizon time.Duration
		want    int64
	}{
		{supply.Rate{}, time.Minute, 0},
		{supply.Rate{Units: 0, Over: time.Minute}, time.Minute, 0},
		{supply.Rate{Units: 10, Over: 10 * time.Second}, time.Minute, 60},
		{supply.Rate{Units: 10, Over: 30 * time.Second}, 10 * time.Second, 4}, // 3.3, rounded up
		{supply.Rate{Units: 1, Over: time.Hour}, time.Millisecond, 1},
		{supply.Rate{Units: 10, Over: time.Second}, 0, 0},
		{supply.Rate{Units: -5, Over: time.Second}, time.Minute, 0},
		{supply.Rate{Units: 1 << 62, Over: time.Second}, time.Hour, quantity.Max},
	} {
		if got := row.rate.Need(row.horizon).Int64(); got != row.want {
			t.Errorf("%+v within %s: %d, want %d", row.rate, row.horizon, got, row.want)
		}
	}
}

// A meter says nothing before a whole window, covers one to two of them after, and begins again when the
// counter does.
func TestMeter(t *testing.T) {
	var m supply.Meter
	if m.Rate(noon).Known() {
		t.Error("a meter that read nothing knows a rate")
	}
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	m = m.Note(at(0), 100).Note(at(5), 150)
	if m.Rate(at(9)).Known() {
		t.Error("known before a window")
	}
	m = m.Note(at(10), 200)
	if got := m.Rate(at(10)); got.Units != 100 || got.Over != 10*time.Second {
		t.Errorf("after one window: %+v", got)
	}
	m = m.Note(at(19), 290)
	if got := m.Rate(at(19)); got.Units != 190 || got.Over != 19*time.Second {
		t.Errorf("before the second ends: %+v", got)
	}
	m = m.Note(at(20), 300)
	if got := m.Rate(at(20)); got.Units != 100 || got.Over != 10*time.Second {
		t.Errorf("the first window is forgotten: %+v", got)
	}
	if got := m.Rate(at(60)); got.Units != 0 || got.Over != 40*time.Second {
		t.Errorf("nobody asked for 40 s: %+v", got)
	}
	if m = m.Note(at(21), 7); m.Rate(at(21)).Known() {
		t.Error("a mirror that was built anew carries the old rate on")
	}
}

// What was asked of a cell is what its mirror admitted or its shard took, whichever is more, and what it refused.
func TestDemand(t *testing.T) {
	r := supply.Report{Stock: core.StockFacts{Reserved: q(10), Confirmed: q(20), Released: 5}, Admitted: 30, Refused: 7}
	if got := r.Demand(); got != 42 {
		t.Errorf("the shard took more: %d", got)
	}
	if r.Admitted = 50; r.Demand() != 57 {
		t.Errorf("the mirror admitted more: %d", r.Demand())
	}
}
