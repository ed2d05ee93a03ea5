package tidy

import (
	"go/ast"
	"strings"
)

var importLaw = Rule{
	Name: "import law",
	Law:  "A room imports only what its row of the table in internal/tidy/law.go allows.",
	find: func(t *tree) []Violation {
		var found []Violation
		for _, f := range t.files {
			found = append(found, t.checkImports(f)...)
		}
		return found
	},
}

func (t *tree) checkImports(f *file) []Violation {
	r := roomOf(f.dir)
	if r == nil {
		return []Violation{{
			place: f.at(f.ast.Name), What: "the folder " + f.dir + " has no row in the import law",
			Instead: "put the code into a room that exists, or give the new room a row in internal/tidy/law.go that says what it may import",
		}}
	}
	var found []Violation
	for _, imp := range f.ast.Imports {
		if what, instead := t.judge(r, f, importedPath(imp)); what != "" {
			found = append(found, Violation{place: f.at(imp), What: what, Instead: instead})
		}
	}
	return found
}

// judge says what is wrong with an import and what to do, or nothing.
func (t *tree) judge(r *room, f *file, imported string) (what, instead string) {
	if ours, ok := strings.CutPrefix(imported, t.module+"/"); ok {
		if coversAny(r.may, ours) || f.test && (ours == f.dir || coversAny(testsMay, ours)) {
			return "", ""
		}
		return r.dir + " must not import " + ours, adviceFor(ours, r)
	}
	if f.test {
		return "", "" // tests bring their own tools
	}
	for _, n := range r.not {
		if covers(n+"/...", imported) {
			return r.dir + " must not import the driver or transport " + imported,
				"call a store of this component; its package is where the driver's errors become sentinels"
		}
	}
	if r.pure && (!isStandard(imported) || coversAny(below(noIO), imported)) {
		return r.dir + " is a pure core and must not import " + imported,
			"take values (also the time) as arguments and return values; let the store, api or loop around the core do the rest"
	}
	return "", ""
}

func adviceFor(ours string, r *room) string {
	switch {
	case covers("tests/...", ours):
		return "nothing imports tests; move what is shared into the room that owns it"
	case covers("cmd/...", ours):
		return "nothing imports a program; move what is shared into the component"
	case covers("internal/testkit/...", ours):
		return "testkit is for _test files"
	case r.pure:
		return "keep the core pure: take what you need as a value or a small interface of your own"
	case covers("internal/...", r.dir):
		return "internal knows no component; take an argument or an interface, or move the code into the component"
	default:
		return "components meet in proto and through each other's client package (cell/client, controlplane/client, edge/client)"
	}
}

// isStandard: the first element of every other module's path has a dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func below(dirs []string) []string {
	patterns := make([]string, len(dirs))
	for i, d := range dirs {
		patterns[i] = d + "/..."
	}
	return patterns
}

// embeddedServers must not reach a production binary: they weigh 10 MB, and their
// metrics and loggers are global.
var embeddedServers = []string{"github.com/twmb/franz-go/pkg/kfake", "go.etcd.io/etcd/server"}

var serverLaw = Rule{
	Name: "embedded servers",
	Law:  "The servers of etcd and kfake are imported by cmd/cellquota-dev, internal/testkit and tests only.",
	find: eachFile(func(f *file) []Violation {
		if f.test || f.within("cmd/cellquota-dev", "internal/testkit") {
			return nil
		}
		return forbidden(f, embeddedServers, "use the client packages (etcd client/v3, franz-go kgo); in tests take testkit.Etcd or testkit.Kafka")
	}),
}

// testLibraries bring test code with them, and one of them the embedded servers.
var testLibraries = []string{"testing", "pgregory.net/rapid", "github.com/google/go-cmp", "go.uber.org/goleak", "github.com/Shopify/toxiproxy"}

var testkitLaw = Rule{
	Name: "testkit",
	Law:  "testkit, test libraries and packages for tests (named …test) are imported by tests only.",
	find: func(t *tree) []Violation {
		refused := append(list(t.module+"/internal/testkit"), testLibraries...)
		for _, f := range t.files {
			if supportsTests(f.dir) {
				refused = append(refused, t.module+"/"+f.dir)
			}
		}
		return eachFile(func(f *file) []Violation {
			if f.test || f.within("internal/testkit", "tests") {
				return nil
			}
			return forbidden(f, refused, "move the code into a _test file, or into internal/testkit when two rooms need it")
		})(t)
	},
}

// forbidden finds imports at or below one of the paths.
func forbidden(f *file, paths []string, instead string) []Violation {
	var found []Violation
	for _, imp := range f.ast.Imports {
		if p := importedPath(imp); coversAny(below(paths), p) {
			found = append(found, Violation{place: f.at(imp), What: "imports " + p, Instead: instead})
		}
	}
	return found
}

// calls visits every call of a function that is selected from something:
// x.Name(…). pkg is x when x is a plain name, else "".
func calls(f *file, visit func(call *ast.CallExpr, pkg, name string)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			pkg := ""
			if id, ok := sel.X.(*ast.Ident); ok {
				pkg = id.Name
			}
			visit(call, pkg, sel.Sel.Name)
		}
		return true
	})
}
