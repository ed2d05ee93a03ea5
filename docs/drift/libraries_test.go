package drift

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLibraries compares ADR 0005 with the modules that our code imports directly.
func TestLibraries(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/adr/0005-libraries.md"
	direct := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(r.read(t, "go.mod"), -1) {
		direct[m[1]] = true
	}
	used := map[string]bool{}
	for _, file := range r.code {
		for _, imp := range file.Imports {
			if module := owner(direct, strings.Trim(imp.Path.Value, `"`)); module != "" {
				used[module] = true
			}
		}
	}
	// Generated code imports these; it is not parsed.
	for _, module := range []string{"google.golang.org/protobuf", "google.golang.org/grpc"} {
		used[module] = true
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(r.read(t, page), -1) {
		for _, module := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[module[1]] = true
		}
	}
	same(t, page, "library", documented, used)
}

// owner is the module that an import belongs to: the longest that covers it.
func owner(modules map[string]bool, imported string) string {
	best := ""
	for _, m := range slices.Sorted(maps.Keys(modules)) {
		if (imported == m || strings.HasPrefix(imported, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}
