package evidence_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/evidence"
)

const lotteryPage = "docs/reference/lottery.md"

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", lotteryPage))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheDocumentedDraw draws the page's worked example with the platform's own code: whoever follows the page
// in another language must come to the same commitment, digest, lots and winners.
func TestTheDocumentedDraw(t *testing.T) {
	t.Parallel()
	text := readPage(t)
	_, example, found := strings.Cut(text, "\n## A worked example\n")
	if !found {
		t.Fatalf("%s has no worked example", lotteryPage)
	}
	example, _, _ = strings.Cut(example, "\n## ")
	value := func(what string) (out [32]byte) {
		m := regexp.MustCompile("(?m)^\\| " + what + " \\| `([0-9a-f]{64})`").FindStringSubmatch(example)
		if m == nil {
			t.Fatalf("%s: the example has no %s", lotteryPage, what)
		}
		raw, _ := hex.DecodeString(m[1]) // by the pattern
		copy(out[:], raw)
		return out
	}
	head := regexp.MustCompile("Campaign `([^`]+)`, SKU `([^`]+)`, beacon `([^`]+)`, ([0-9]+) units").FindStringSubmatch(example)
	if head == nil {
		t.Fatalf("%s: the example does not say what is drawn", lotteryPage)
	}
	units, _ := strconv.ParseInt(head[4], 10, 64) // by the pattern
	rules := allocator.LotteryRules{Campaign: head[1], SKU: head[2], Beacon: head[3], Units: units, Seed: value("seed"), Entrants: value("entrants' digest")}
	if got := allocator.Commitment(rules.Seed); got != value("commitment") {
		t.Errorf("%s: the commitment is %x", lotteryPage, got)
	}
	list := allocator.NewEntrantList()
	draw, all := drawOf(t, rules), drawOf(t, everybody(rules))
	want := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| ([0-9]+) \\| `([0-9a-f]{64})` \\| (won|lost) \\|$").FindAllStringSubmatch(example, -1) {
		n, _ := strconv.Atoi(row[3]) // by the pattern
		e := allocator.Entrant{ID: row[1], Cell: row[2], Tickets: n}
		for _, add := range []func(allocator.Entrant) error{list.Add, draw.Add, all.Add} {
			if err := add(e); err != nil {
				t.Fatal(err)
			}
		}
		want[row[1]] = row[4] + " " + row[5]
	}
	if sum := list.Digest(); sum != rules.Entrants {
		t.Errorf("%s: the entrants' digest is %x", lotteryPage, sum)
	}
	got := map[string]string{}
	for _, w := range all.Winners() {
		got[w.ID] = hex.EncodeToString(w.Lot[:]) + " lost"
	}
	for _, w := range draw.Winners() {
		got[w.ID] = hex.EncodeToString(w.Lot[:]) + " won"
	}
	if int64(len(want)) <= units || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: a draw gives %v, the page says %v", lotteryPage, got, want)
	}
}

func drawOf(t *testing.T, rules allocator.LotteryRules) *allocator.Draw {
	t.Helper()
	draw, err := allocator.NewDraw(rules)
	if err != nil {
		t.Fatal(err)
	}
	return draw
}

// everybody wins: the page's lots are all looked at. Units are no part of the key.
func everybody(rules allocator.LotteryRules) allocator.LotteryRules {
	rules.Units = allocator.MaxDrawn
	return rules
}

// TestTheDocumentedEvidence compares the page's fields with the document's, and its bounds with the
// code's.
func TestTheDocumentedEvidence(t *testing.T) {
	t.Parallel()
	text := readPage(t)
	_, table, _ := strings.Cut(text, "| field of the document |")
	table, _, _ = strings.Cut(table, "\n\n")
	have, want := map[string]bool{}, map[string]bool{}
	for _, row := range strings.Split(table, "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, m := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(first, -1) {
			have[m[1]] = true
		}
	}
	for f := range reflect.TypeFor[evidence.Document]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want[name] = true
	}
	if !maps.Equal(have, want) {
		t.Errorf("%s has the fields %v, the document %v", lotteryPage, have, want)
	}
	plain := strings.Join(strings.Fields(text), " ")
	for _, bound := range []string{
		fmt.Sprintf("1 to %d tickets", allocator.MaxTickets), fmt.Sprintf("at most %d bytes", allocator.MaxBeaconBytes),
		"at most 1,000,000 units", fmt.Sprintf("at most %d MiB each", evidence.PartBytes>>20),
	} {
		if !strings.Contains(plain, bound) {
			t.Errorf("%s does not say %q", lotteryPage, bound)
		}
	}
	if allocator.MaxDrawn != 1_000_000 || evidence.PartBytes%(1<<20) != 0 {
		t.Errorf("a draw has at most %d units, a part %d bytes: say so in %s", allocator.MaxDrawn, evidence.PartBytes, lotteryPage)
	}
}
