package drift

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metric is one series as its constructor makes it.
type metric struct {
	name, kind, help string
	labels           []string
	dir              string
}

const metricsPage = "docs/reference/metrics.md"

// TestMetrics compares the page with the constructors of all packages.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := house(t)
	all := r.metrics(t)
	if len(all) < 30 {
		t.Fatalf("only %d metrics were found: the search is broken", len(all))
	}
	for _, component := range []string{"controlplane", "cell", "edge", "internal"} {
		var table strings.Builder
		table.WriteString("| metric | kind | labels | meaning | made in |\n|---|---|---|---|---|\n")
		for _, m := range all {
			if top, _, _ := strings.Cut(m.dir, "/"); top == component {
				fmt.Fprintf(&table, "| `cellquota_%s` | %s | %s | %s | `%s` |\n", m.name, m.kind, strings.Join(m.labels, ", "), inTable(m.help), m.dir)
			}
		}
		r.generated(t, metricsPage, component, table.String())
	}
}

var promised = regexp.MustCompile("(?m)^\\| `cellquota_([a-z_]+)` \\| later")

// TestMetricsToCome fails when a metric came that the page still promises, and when
// two packages of one component make the same.
func TestMetricsToCome(t *testing.T) {
	t.Parallel()
	r := house(t)
	there, made := map[string]string{}, map[string]string{}
	for _, m := range r.metrics(t) {
		component, _, _ := strings.Cut(m.dir, "/")
		if before, twice := made[component+m.name]; twice && before != m.dir {
			t.Errorf("%s is made in %s and in %s", m.name, before, m.dir)
		}
		there[m.name], made[component+m.name] = m.dir, m.dir
	}
	for _, m := range promised.FindAllStringSubmatch(r.read(t, metricsPage), -1) {
		if dir, ok := there[m[1]]; ok {
			t.Errorf("%s says that %s comes later; it is made in %s", metricsPage, m[1], dir)
		}
	}
}

// metrics finds every metric that production code makes, by name.
func (r *repository) metrics(t *testing.T) []metric {
	t.Helper()
	packages := map[string][]*ast.File{}
	for _, name := range slices.Sorted(maps.Keys(r.code)) {
		if !strings.HasSuffix(name, "_test.go") {
			packages[path.Dir(name)] = append(packages[path.Dir(name)], r.code[name])
		}
	}
	words := r.constants(t, "internal/telemetry/fields.go", "")
	var all []metric
	for dir, files := range packages {
		s := search{dir: dir, words: words, makers: map[string]maker{}}
		for _, f := range files {
			ast.Inspect(f, s.findMakers)
		}
		for _, f := range files {
			ast.Inspect(f, s.findMetrics)
		}
		all = append(all, s.found...)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return all
}

// inTable makes a text fit into a table.
func inTable(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
