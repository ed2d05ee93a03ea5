package controlplane

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// loopRooms are the rooms whose code the leader runs.
var loopRooms = []string{"planner", "quota", "settle", "reclaim", "recovery", "deletion", "audit", "link", "supply", "drain", "handover", "lottery", "reversal"}

// ordersOf are the files of those rooms that any replica runs: what operators ask for.
var ordersOf = map[string]bool{"reclaim/orders.go": true, "reclaim/drain.go": true, "recovery/orders.go": true}

// Every transaction of a loop compares the leader's key: its middle says Tx.Lead, itself
// or through a function of its room, and a Move names its Leader. Whoever adds a write
// without it lets a former leader, paused and resumed, change what another one leads.
func TestEveryWriteOfALoopSaysLead(t *testing.T) {
	writes := 0
	for _, room := range loopRooms {
		files := parsed(t, room)
		leads := leading(files)
		for name, file := range files {
			if ordersOf[name] {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.CallExpr:
					if middle, is := update(x); is {
						writes++
						if !says(middle, leads) {
							t.Errorf("%s: a transaction that does not say Tx.Lead", name)
						}
					}
				case *ast.CompositeLit:
					if s, ok := x.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Move" && ident(s.X) == "store" {
						writes++
						if !names(x, "Leader") {
							t.Errorf("%s: a Move without its Leader", name)
						}
					}
				}
				return true
			})
		}
	}
	if writes < 25 {
		t.Errorf("only %d writes were found: the law looks in the wrong place", writes)
	}
}

func parsed(t *testing.T, room string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(room, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("room %s: %v, %v", room, paths, err)
	}
	out := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.ToSlash(path)] = file
	}
	return out
}

// leading gives the functions of a room that say Lead, themselves or through others.
func leading(files map[string]*ast.File) map[string]bool {
	leads := map[string]bool{"Lead": true}
	for grown := true; grown; {
		grown = false
		for _, file := range files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if ok && f.Body != nil && !leads[f.Name.Name] && takesTx(f) && says(f.Body, leads) {
					leads[f.Name.Name], grown = true, true
				}
			}
		}
	}
	return leads
}

func takesTx(f *ast.FuncDecl) bool {
	for _, p := range f.Type.Params.List {
		if star, ok := p.Type.(*ast.StarExpr); ok {
			if s, ok := star.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Tx" {
				return true
			}
		}
	}
	return false
}

// update gives the middle of a call of Store.Update.
func update(x *ast.CallExpr) (middle ast.Node, is bool) {
	s, ok := x.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Update" || len(x.Args) != 3 {
		return nil, false
	}
	if on := ident(s.X); !strings.EqualFold(on, "store") {
		return nil, false
	}
	return x.Args[2], true
}

// ident is the last name of an expression.
func ident(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

func says(n ast.Node, leads map[string]bool) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && leads[ident(call.Fun)] {
			found = true
		}
		return !found
	})
	return found
}

func names(x *ast.CompositeLit, field string) bool {
	for _, e := range x.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && ident(kv.Key) == field {
			return true
		}
	}
	return false
}
