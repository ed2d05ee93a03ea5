package drift

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// accepted are the rows that docs/ACCEPTANCE.md must have, each once.
func accepted() (ids []string) {
	for i := 1; i <= 17; i++ {
		ids = append(ids, fmt.Sprintf("C-%02d", i))
	}
	for _, span := range [][2]int{{268, 276}, {294, 294}, {119, 126}} {
		for n := span[0]; n <= span[1]; n++ {
			ids = append(ids, fmt.Sprintf("R-%d", n))
		}
	}
	for _, n := range []int{
		4, 7, 13, 14, 15, 18, 19, 25, 28, 32, 33, 35, 36, 42, 44, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 58, 59, 60, 61,
		62, 63, 64, 65, 66, 67, 68, 69, 70, 73, 74, 75, 76, 77, 79, 80, 81, 82, 83, 85,
	} {
		ids = append(ids, fmt.Sprintf("K%02d", n))
	}
	return ids
}

// TestAcceptancePage: every row is there once and links to tests (TestLinks sees to it that they exist), and a
// test in one of their folders names the row.
func TestAcceptancePage(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/ACCEPTANCE.md"
	rows := map[string][]string{}
	for line := range strings.Lines(r.read(t, page)) {
		if m := regexp.MustCompile(`^\| ([CRK]-?[0-9]+)[ |]`).FindStringSubmatch(line); m != nil {
			rows[m[1]] = append(rows[m[1]], line)
		}
	}
	for _, id := range accepted() {
		if len(rows[id]) != 1 {
			t.Errorf("%s has %d rows for %s", page, len(rows[id]), id)
			continue
		}
		folders := map[string]bool{}
		for _, m := range links.FindAllStringSubmatch(rows[id][0], -1) {
			if testName.MatchString(strings.Trim(m[1], "`")) {
				folders[path.Join(path.Dir(page), path.Dir(m[2]))] = true
			}
		}
		if len(folders) == 0 {
			t.Errorf("%s: %s is shown by no test", page, id)
		} else if !r.named(t, id, folders) {
			t.Errorf("%s: no test of %v names %s", page, folders, id)
		}
	}
}

// named: a test file in one of the folders has the word: K51 also as the beginning of a test's name.
func (r *repository) named(t *testing.T, id string, folders map[string]bool) bool {
	t.Helper()
	word := regexp.MustCompile(regexp.QuoteMeta(id) + `(\b|[A-Z])`)
	for folder := range folders {
		files, err := filepath.Glob(filepath.Join(r.dir, filepath.FromSlash(folder), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name, err := filepath.Rel(r.dir, f)
			if err != nil {
				t.Fatal(err)
			}
			if word.MatchString(r.read(t, filepath.ToSlash(name))) {
				return true
			}
		}
	}
	return false
}
