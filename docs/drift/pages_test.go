package drift

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestInvariantsPage: every invariant is there, is asserted somewhere, is checked by
// something, and is attacked by at least two tests. TestLinks follows the links.
func TestInvariantsPage(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/INVARIANTS.md"
	text := r.read(t, page) + "\n## "
	for i := 1; i <= 10; i++ {
		name := fmt.Sprintf("I%d", i)
		_, part, found := strings.Cut(text, "\n## "+name+" ")
		if !found {
			t.Errorf("%s: no heading for %s", page, name)
			continue
		}
		part, _, _ = strings.Cut(part, "\n## ")
		asserted, checked, _ := strings.Cut(part, "**Checked by**")
		_, attacked, _ := strings.Cut(checked, "**Attacked by**")
		if len(links.FindAllString(asserted, -1)) == 0 && name != "I10" {
			t.Errorf("%s: %s links to nothing that asserts it", page, name)
		}
		if len(links.FindAllString(checked, -1)) == 0 {
			t.Errorf("%s: %s says nothing that checks it", page, name)
		}
		if n := len(regexp.MustCompile("\\[`(Test|Fuzz)").FindAllString(attacked, -1)); n < 2 {
			t.Errorf("%s: %s is attacked by %d tests", page, name, n)
		}
	}
}

// TestChecklist: every question is there once, with links to the code that answers it and
// to a test of it.
func TestChecklist(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/CHECKLIST.md"
	text := r.read(t, page)
	for _, span := range [][2]int{{128, 142}, {346, 357}} {
		for n := span[0]; n <= span[1]; n++ {
			parts := strings.Split(text, fmt.Sprintf("\n### R-%d ", n))
			if len(parts) != 2 {
				t.Errorf("%s has R-%d %d times", page, n, len(parts)-1)
				continue
			}
			answer, _, _ := strings.Cut(parts[1], "\n### ")
			tests, code := 0, 0
			for _, m := range links.FindAllStringSubmatch(answer, -1) {
				if testName.MatchString(strings.Trim(m[1], "`")) {
					tests++
				} else {
					code++
				}
			}
			if tests == 0 || code == 0 {
				t.Errorf("%s: R-%d links to %d places of the code and %d tests", page, n, code, tests)
			}
		}
	}
}
