package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/edge/load"
)

// Report is the demo's end: printed, and written to $DEMO_REPORT.
type Report struct {
	OK       bool     `json:"ok"`
	Settings Settings `json:"settings"`
	Campaign string   `json:"campaign_id"`
	SKU      string   `json:"sku_id"`
	// SetUpSeconds is the platform's start, apart from the demo's own time.
	SetUpSeconds float64 `json:"set_up_seconds"`
	DemoSeconds  float64 `json:"demo_seconds"`

	Ledger Ledger `json:"ledger"`
	Sale   Sale   `json:"sale"`
	Fence  Fence  `json:"fence"`

	Answers   load.Counts                 `json:"answers"`
	Latencies map[load.Stage]load.Latency `json:"latencies"`
	Totals    load.Snapshot               `json:"totals"`
	Late      int64                       `json:"late_starts"`
	Memory    []Peak                      `json:"memory"`

	Invariants []Invariant `json:"invariants"`
	Witness    Testimony   `json:"witness"`
	History    History     `json:"history"`
	// Faults are all breaches and sums that do not hold, in words; at most 200.
	Faults []string `json:"faults"`
	// Unchecked are things that could not be checked at the end.
	Unchecked []string  `json:"unchecked"`
	Chapters  []Chapter `json:"chapters"`
}

// Sale is how fast it went.
type Sale struct {
	Orders                  int64   `json:"orders"`
	OrdersPerSecondAverage  float64 `json:"orders_per_second_average"`
	OrdersPerSecondPeak     int64   `json:"orders_per_second_peak"`
	OpeningToLastOrderMS    float64 `json:"opening_to_last_order_ms"`
	OpeningToNineInTenUnits float64 `json:"opening_to_nine_in_ten_units_sold_ms"`
}

// Fence is what became of the dead cell's units.
type Fence struct {
	Cell string `json:"cell_id"`
	// Units that it had not sold and others were given.
	Reclaimed int64 `json:"reclaimed_units"`
	// KillToSuspect, CommandToProof and CommandToOnSale are times in milliseconds; the last one ends
	// with the first look at which the other shards hold the units.
	KillToSuspectMS   float64 `json:"kill_to_suspect_ms"`
	CommandToDoneMS   float64 `json:"command_to_operation_done_ms"`
	CommandToOnSaleMS float64 `json:"command_to_units_on_sale_elsewhere_ms"`
	CommandToSoldMS   float64 `json:"command_to_units_sold_elsewhere_ms"`
	// ConfirmedAtDeath and ConfirmedAtEnd of the cell: the difference was paid after its return.
	ConfirmedAtDeath int64 `json:"confirmed_at_death"`
	ConfirmedAtEnd   int64 `json:"confirmed_at_end"`
}

// Invariant is one verdict over everything that judged it.
type Invariant struct {
	Name    string `json:"invariant"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

// History is what the oracle looked at.
type History struct {
	Records  int64 `json:"records"`
	Requests int64 `json:"requests"`
	Promised int64 `json:"promised"`
	Orders   int64 `json:"orders"`
	Unknown  int64 `json:"unanswered"`
}

// Chapter is one step of the story with its time since the doors opened, negative before.
type Chapter struct {
	AtMS float64 `json:"at_ms"`
	What string  `json:"what"`
}

// maxFaults bounds what a report lists.
const maxFaults = 200

func (r *Report) fault(format string, args ...any) {
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
	}
}

// write puts the report into $DEMO_REPORT.
func (r *Report) write(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("DEMO_REPORT: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("DEMO_REPORT: %w", err)
	}
	return nil
}

// View shows the report.
func (r *Report) View() render.View {
	return render.View{
		Value: r, Lines: r.lines(),
		Tables: []render.Table{r.memoryTable(), r.answerTable(), r.latencyTable(), r.invariantTable(), r.unitTable()},
	}
}

func (r *Report) lines() []string {
	f, s := r.Fence, r.Sale
	lines := []string{
		fmt.Sprintf("opening to last order                %s", span(s.OpeningToLastOrderMS)),
		fmt.Sprintf("orders                               %d, %.0f/s on average, %d/s in the best second; nine in ten units after %s",
			s.Orders, s.OrdersPerSecondAverage, s.OrdersPerSecondPeak, span(s.OpeningToNineInTenUnits)),
		fmt.Sprintf("kill of %s to SUSPECT            %s", f.Cell, span(f.KillToSuspectMS)),
		fmt.Sprintf("fence to units on sale elsewhere     %s (%d units; the operation took %s, they were sold after %s)",
			span(f.CommandToOnSaleMS), f.Reclaimed, span(f.CommandToDoneMS), span(f.CommandToSoldMS)),
		fmt.Sprintf("paid at %s after its return      %d units", f.Cell, f.ConfirmedAtEnd-f.ConfirmedAtDeath),
		fmt.Sprintf("witness                              %d samples of every shard, %d exact, %d book revisions, %d breaches",
			r.Witness.Samples, r.Witness.Exact, r.Witness.Revisions, r.Witness.Breaches),
		fmt.Sprintf("history                              %d operations of %d requests, %d promised, %d without an answer",
			r.History.Records, r.History.Requests, r.History.Promised, r.History.Unknown),
		fmt.Sprintf("customers                            %d came, %d of them more than a second late for want of a free place", r.Totals.Started, r.Late),
		fmt.Sprintf("time                                 platform ready in %.1f s, demo %.1f s", r.SetUpSeconds, r.DemoSeconds),
	}
	lines = append(lines, r.Ledger.sums()...)
	for _, fault := range r.Faults {
		lines = append(lines, "FAULT  "+fault)
	}
	for _, u := range r.Unchecked {
		lines = append(lines, "UNCHECKED  "+u)
	}
	return lines
}

func (r *Report) unitTable() render.Table {
	t := render.Table{Title: "UNITS OF " + r.SKU, Columns: render.Columns("CELL", "#ALLOCATED", "#GRANTED", "#AVAILABLE", "#RESERVED", "#CONFIRMED", "#WRITTEN OFF")}
	add := func(x Row) {
		t.Rows = append(t.Rows, []string{x.Cell, n(x.Allocated), n(x.Granted), n(x.Available), n(x.Reserved), n(x.Confirmed), n(x.WrittenOff)})
	}
	for _, x := range r.Ledger.Rows {
		add(x)
	}
	add(r.Ledger.Total)
	t.Rows = append(t.Rows,
		[]string{"reserve", n(r.Ledger.Reserve), n(r.Ledger.Reserve), "", "", "", ""},
		[]string{"sale limit", n(r.Ledger.Reserve + r.Ledger.Total.Allocated), n(r.Ledger.Reserve + r.Ledger.Total.Granted + r.Ledger.Total.WrittenOff), "", "", "", ""})
	return t
}

func (r *Report) invariantTable() render.Table {
	t := render.Table{Title: "INVARIANTS", Columns: render.Columns("INVARIANT", "VERDICT", "DETAIL")}
	for _, i := range r.Invariants {
		t.Rows = append(t.Rows, []string{i.Name, i.Verdict, i.Detail})
	}
	return t
}

func (r *Report) latencyTable() render.Table {
	t := render.Table{Title: "LATENCY IN MS", Columns: render.Columns("STAGE", "#COUNT", "#P50", "#P99", "#P99.9", "#MAX")}
	for _, s := range load.Stages {
		if l, ok := r.Latencies[s]; ok {
			t.Rows = append(t.Rows, []string{string(s), n(l.Count), ms(l.P50), ms(l.P99), ms(l.P999), ms(l.Max)})
		}
	}
	return t
}

func (r *Report) answerTable() render.Table {
	t := render.Table{Title: "ANSWERS", Columns: render.Columns("ANSWER", "#COUNT")}
	for _, k := range r.Answers.Sorted() {
		t.Rows = append(t.Rows, []string{k, n(r.Answers[k])})
	}
	return t
}

func (r *Report) memoryTable() render.Table {
	t := render.Table{Title: "PEAK MEMORY", Columns: render.Columns("PROCESS", "#MIB")}
	for _, p := range r.Memory {
		t.Rows = append(t.Rows, []string{p.Process, n(p.Bytes >> 20)})
	}
	return t
}

func n(v int64) string { return strconv.FormatInt(v, 10) }

func ms(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// span is milliseconds for people; "not seen" for a moment that never came.
func span(v float64) string {
	if v <= 0 {
		return "not seen"
	}
	return (time.Duration(v) * time.Millisecond).String()
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
