package tidy

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
)

// Rule is one house rule.
type Rule struct {
	Name string // short, for the eye: "import law"
	Law  string // the rule in a sentence
	find func(*tree) []Violation
}

// Rules are all house rules, in the order of the house: walls, clocks, tests,
// words.
func Rules() []Rule {
	return []Rule{
		importLaw, serverLaw, testkitLaw,
		clockLaw, randomLaw, sqlLaw, channelLaw,
		goroutineLaw, retryLaw, queueLaw,
		sleepLaw, skipLaw,
		markerLaw, nameLaw, docLaw,
	}
}

type place struct {
	Path string // from the repository's root
	Line int
}

// Violation is one place that breaks one rule.
type Violation struct {
	place
	Rule    string
	What    string // what stands there
	Instead string // what to write instead
}

// String is the violation on one line, in the form that editors jump to.
func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s; instead: %s", v.Path, v.Line, v.Rule, v.What, v.Instead)
}

// Check applies every rule to the repository below fsys's root, where go.mod is.
// The violations come sorted by place; an error means that something could not be
// read or parsed.
func Check(fsys fs.FS) ([]Violation, error) {
	t, err := read(fsys)
	if err != nil {
		return nil, err
	}
	return t.check(), nil
}

func (t *tree) check() []Violation {
	var found []Violation
	for _, rule := range Rules() {
		for _, v := range rule.find(t) {
			v.Rule = rule.Name
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	return found
}

// eachFile makes a rule's find of a function over single files that people write;
// generated files are passed over.
func eachFile(find func(*file) []Violation) func(*tree) []Violation {
	return func(t *tree) []Violation {
		var found []Violation
		for _, f := range t.files {
			if !f.generated {
				found = append(found, find(f)...)
			}
		}
		return found
	}
}
