package drift

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// faultRows are the requirements that are rows of the sources' fault tables.
var faultRows = [][2]int{{12, 12}, {84, 90}, {193, 199}, {241, 254}}

var (
	faultRow    = regexp.MustCompile(`(?m)^\| ((?:R-\d{3},? ?)+) ?[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|$`)
	seriesNamed = regexp.MustCompile("`([a-z_]+)(?:\\{([^}`]*)\\})?`")
)

// TestFaults: every row of the sources' fault tables is on the page with a metric that is made,
// what happens by itself, and a command; that commands parse is TestCommands' matter, and that
// links lead somewhere TestLinks'.
func TestFaults(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/runbooks/faults.md"
	made := map[string][]string{}
	for _, m := range r.metrics(t) {
		made[m.name] = append(made[m.name], m.labels...)
	}
	for _, m := range promised.FindAllStringSubmatch(r.read(t, metricsPage), -1) {
		made[m[1]] = append(made[m[1]], "kind") // the page says that it comes, and TestMetricsToCome that it came
	}
	named := map[string]int{}
	for _, row := range faultRow.FindAllStringSubmatch(r.read(t, page), -1) {
		rows, metrics, itself, command := strings.TrimSpace(row[1]), row[2], strings.TrimSpace(row[3]), row[4]
		for _, n := range regexp.MustCompile(`R-\d{3}`).FindAllString(rows, -1) {
			named[n]++
		}
		series := seriesNamed.FindAllStringSubmatch(metrics, -1)
		if len(series) == 0 || itself == "" || !strings.Contains(command, "`cellctl ") {
			t.Errorf("%s: %s lacks a metric, what happens by itself, or a command", page, rows)
		}
		for _, s := range series {
			labels, known := made[s[1]]
			if !known {
				t.Errorf("%s: %s names cellquota_%s, which nobody makes", page, rows, s[1])
			}
			for label := range strings.SplitSeq(s[2], ",") {
				label, _, _ = strings.Cut(label, "=")
				if label != "" && known && !strings.Contains(" "+strings.Join(labels, " ")+" ", " "+label+" ") {
					t.Errorf("%s: %s names cellquota_%s by %s; its labels are %v", page, rows, s[1], label, labels)
				}
			}
		}
	}
	for _, span := range faultRows {
		for n := span[0]; n <= span[1]; n++ {
			if id := fmt.Sprintf("R-%03d", n); named[id] != 1 {
				t.Errorf("%s has %s %d times", page, id, named[id])
			}
		}
	}
}
