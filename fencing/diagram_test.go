package fencing

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the grids of doc.go anew from the tables")

// The grids in doc.go are made from the tables. Regenerate on purpose only:
// go test ./fencing -run Grids -update
func TestGridsInDocAreMadeFromTheTables(t *testing.T) {
	raw, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	want := replaceBlock(t, doc, "cell", cellGrid())
	want = replaceBlock(t, want, "reclaim", reclaimGrid())
	if doc == want {
		return
	}
	if *update {
		if err := os.WriteFile("doc.go", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("doc.go does not show the tables; it should read\n%s\n%s", cellGrid(), reclaimGrid())
}

func replaceBlock(t *testing.T, doc, name, grid string) string {
	t.Helper()
	begin, end := "//\t-- "+name+" --\n", "//\t-- end --\n"
	before, rest, ok := strings.Cut(doc, begin)
	if !ok {
		t.Fatalf("doc.go has no block %q", name)
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("block %q of doc.go has no end", name)
	}
	var lines strings.Builder
	for line := range strings.Lines(grid) {
		lines.WriteString(strings.TrimRight("//\t"+line, " \t\n") + "\n")
	}
	return before + begin + lines.String() + end + after
}

// Columns are narrow: the heads are cut so that no two look alike.
var (
	cellHeads = [cellStates]string{
		Provisioned: "PROV", Active: "ACTIV", Suspect: "SUSP", Draining: "DRAIN", Fencing: "FENCG",
		Fenced: "FENCD", Restoring: "RESTO", Regressed: "REGR", Retired: "RETIR",
	}
	reclaimHeads = [reclaimStates]string{
		FenceRequested: "REQST", FenceRunning: "FENCG", FenceProven: "FENCD", Reclaiming: "RECLG",
		Reclaimed: "RECLD", RestoreRunning: "RESTO", SettleOnly: "SETTL", ActiveAgain: "ACTIV",
	}
)

func cellGrid() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-13s", "")
	for _, s := range CellStates() {
		fmt.Fprintf(&b, "%-7s", cellHeads[s])
	}
	b.WriteString("\n")
	for _, e := range CellEventKinds() {
		fmt.Fprintf(&b, "%-13s", e)
		for _, s := range CellStates() {
			fmt.Fprintf(&b, "%-7s", cellMark(cellTable[s][e]))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, s := range CellStates() {
		fmt.Fprintf(&b, "%s\n", s)
		for _, e := range CellEventKinds() {
			if rule := cellTable[s][e]; rule.kind == moves {
				fmt.Fprintf(&b, "    %-12s -> %s%s\n", e, cellNext(rule), effectList(rule.effects))
			}
		}
	}
	return b.String()
}

func cellMark(rule cellRule) string {
	switch rule.kind {
	case moves:
		mark := cellHeads[rule.next]
		if rule.bump != keep {
			mark += "+"
		}
		return mark
	case noOp:
		return "="
	case rejects:
		return "x"
	case impossible:
		return "!"
	}
	return "?"
}

func cellNext(rule cellRule) string {
	if rule.bump != keep {
		return rule.next.String() + ", higher version"
	}
	return rule.next.String()
}

func effectList(effects []EffectKind) string {
	if len(effects) == 0 {
		return ""
	}
	return ": " + strings.Trim(fmt.Sprint(effects), "[]")
}

func reclaimGrid() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s", "")
	for _, s := range ReclaimStates() {
		fmt.Fprintf(&b, "%-7s", reclaimHeads[s])
	}
	b.WriteString("\n")
	for _, e := range ReclaimEventKinds() {
		fmt.Fprintf(&b, "%-15s", e)
		for _, s := range ReclaimStates() {
			fmt.Fprintf(&b, "%-7s", reclaimMark(reclaimTable[s].on[e]))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, s := range ReclaimStates() {
		if owes := reclaimTable[s].owes; len(owes) > 0 {
			fmt.Fprintf(&b, "%-15s owes%s\n", s, effectList(owes))
		} else {
			fmt.Fprintf(&b, "%-15s rests\n", s)
		}
	}
	return b.String()
}

func reclaimMark(rule reclaimRule) string {
	switch rule.kind {
	case moves:
		return reclaimHeads[rule.next]
	case noOp:
		return "="
	case wishes:
		return "w"
	case rejects:
		return "x"
	case impossible:
		return "!"
	}
	return "?"
}
