package drift

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRooms: the README of every component names each of its packages; what lies deeper is
// its package's to explain.
func TestRooms(t *testing.T) {
	t.Parallel()
	r := house(t)
	for _, component := range []string{"allocator", "cell", "controlplane", "edge", "fencing", "internal"} {
		page := component + "/README.md"
		text := r.read(t, page)
		rooms := map[string]bool{}
		for name := range r.code {
			rest, inside := strings.CutPrefix(path.Dir(name), component+"/")
			if inside && !strings.HasSuffix(name, "_test.go") {
				room, _, _ := strings.Cut(rest, "/")
				rooms[room] = true
			}
		}
		if len(rooms) == 0 {
			t.Errorf("%s: no packages were found", component)
		}
		for _, room := range slices.Sorted(maps.Keys(rooms)) {
			if !regexp.MustCompile("`" + room + "[`/]").MatchString(text) {
				t.Errorf("%s names no room `%s`", page, room)
			}
		}
	}
}

// TestEveryPageIsListed: whoever opens a folder of pages finds each of them from its README.
func TestEveryPageIsListed(t *testing.T) {
	t.Parallel()
	r := house(t)
	for _, folder := range []string{"docs/adr", "docs/reference", "docs/runbooks"} {
		index := r.read(t, folder+"/README.md")
		listed := 0
		for _, page := range r.pages {
			if path.Dir(page) != folder || path.Base(page) == "README.md" {
				continue
			}
			listed++
			if !strings.Contains(index, "]("+path.Base(page)+")") {
				t.Errorf("%s/README.md does not lead to %s", folder, path.Base(page))
			}
		}
		if listed == 0 {
			t.Errorf("%s: no pages were found", folder)
		}
	}
}

// TestChangelogSaysThingsOnce: entries are found by their first words, which a merge that keeps both sides
// must not double.
func TestChangelogSaysThingsOnce(t *testing.T) {
	t.Parallel()
	titles := regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*`).FindAllStringSubmatch(house(t).read(t, "CHANGELOG.md"), -1)
	if len(titles) < 10 {
		t.Fatalf("CHANGELOG.md has %d entries: the pattern is broken", len(titles))
	}
	seen := map[string]bool{}
	for _, m := range titles {
		if seen[m[1]] {
			t.Errorf("CHANGELOG.md has %q twice", m[1])
		}
		seen[m[1]] = true
	}
}
