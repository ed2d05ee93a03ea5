package drift

import (
	"regexp"
	"testing"
)

// TestMakeTargets looks every `make TARGET` of every page up in the Makefile.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	r := house(t)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(r.read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	seen := 0
	for _, page := range r.pages {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)\\s*make ([a-z][a-z-]+)").FindAllStringSubmatch(r.read(t, page), -1) {
			seen++
			if !targets[m[1]] {
				t.Errorf("%s shows make %s; the Makefile has no such target", page, m[1])
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d make commands were found: the pattern is broken", seen)
	}
}
