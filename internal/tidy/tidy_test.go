package tidy

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the repository's root: the nearest folder above with a go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod in any folder above")
}

// house is the repository, read once.
var house = sync.OnceValues(func() (*tree, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	return read(os.DirFS(dir))
})

func readHouse(t *testing.T) *tree {
	t.Helper()
	read, err := house()
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestHouse is the point of this package.
func TestHouse(t *testing.T) {
	t.Parallel()
	for _, v := range readHouse(t).check() {
		t.Error(v)
	}
}

// TestC17NothingIsUnbounded is C-17: no goroutine without an owner or a bound, no retry that neither
// waits nor counts, no queue without a capacity that is written down. That each of the three rules can fail
// is shown by its examples; what a burst does to the memory and the goroutines of a whole cell is measured by
// BenchmarkMemory (cell) and tried by TestChaosHerd (tests/system).
func TestC17NothingIsUnbounded(t *testing.T) {
	t.Parallel()
	for _, rule := range []Rule{goroutineLaw, retryLaw, queueLaw} {
		for _, v := range rule.find(readHouse(t)) {
			v.Rule = rule.Name
			t.Error(v)
		}
	}
	for path, bound := range inCrowd {
		if bound == "" {
			t.Errorf("%s: a list without a bound", path)
		}
	}
}

// TestHouseWasSeen keeps TestHouse from passing because it looked at nothing.
func TestHouseWasSeen(t *testing.T) {
	t.Parallel()
	house := readHouse(t)
	seen := map[string]bool{}
	for _, f := range house.files {
		seen[f.dir] = true
	}
	for _, dir := range []string{"allocator", "allocator/quantity", "fencing", "controlplane/core", "cell/reservation", "cell/shard", "edge/api", "internal/tidy", "proto/cellquota/v1"} {
		if !seen[dir] {
			t.Errorf("%s was not read", dir)
		}
	}
	if len(house.texts) == 0 {
		t.Error("no .sql, .lua or .proto file was read")
	}
}

// TestSizes reports the longest files and functions. It is a gauge, not a cap: ask
// of each whether a second noun or a pure leaf wants to leave.
func TestSizes(t *testing.T) {
	t.Parallel()
	house := readHouse(t)
	type size struct {
		lines int
		name  string
	}
	var files, functions []size
	for _, f := range house.files {
		if f.generated {
			continue
		}
		lines := func(n ast.Node) int { return f.fset.Position(n.End()).Line - f.fset.Position(n.Pos()).Line + 1 }
		files = append(files, size{f.fset.Position(f.ast.FileEnd).Line, f.path})
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				functions = append(functions, size{lines(fn), f.path + " " + fn.Name.Name})
			}
		}
	}
	for kind, sizes := range map[string][]size{"files": files, "functions": functions} {
		slices.SortFunc(sizes, func(a, b size) int { return cmp.Compare(b.lines, a.lines) })
		var text strings.Builder
		for _, s := range sizes[:min(8, len(sizes))] {
			fmt.Fprintf(&text, "\n%5d %s", s.lines, s.name)
		}
		t.Logf("longest %s of %d:%s", kind, len(sizes), text.String())
	}
}
