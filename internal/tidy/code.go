package tidy

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
)

// wallClock are the functions of package time that read or wait for the clock on
// the wall.
var wallClock = []string{"Now", "Since", "Until", "After", "Tick", "Sleep", "NewTimer", "NewTicker", "AfterFunc"}

var clockLaw = Rule{
	Name: "clock",
	Law:  "Time is read and waited for through internal/clock only (tests may look at the clock, but not sleep).",
	find: eachFile(func(f *file) []Violation {
		if f.test || f.within("internal/clock", "internal/testkit") {
			return nil
		}
		return uses(f, "time", wallClock, "take a clock.Clock and use its Now, NewTimer, NewTicker or Sleep; in a core take now as a value")
	}),
}

var sleepLaw = Rule{
	Name: "sleep in a test",
	Law:  "No test waits by sleeping.",
	find: eachFile(func(f *file) []Violation {
		if !f.test {
			return nil
		}
		const instead = "wait for the signal (channel, clock.Manual.BlockUntil) or testkit.Eventually; for a fault's hold use testkit.Hold"
		return append(uses(f, "time", []string{"Sleep", "Tick"}, instead), bareAfter(f, instead)...)
	}),
}

// bareAfter finds <-time.After(d) as a statement: a sleep by another name.
func bareAfter(f *file, instead string) []Violation {
	var found []Violation
	name := f.calledAs("time")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		clause, inSelect := n.(*ast.CommClause)
		if inSelect { // a case of a select is a time-out, which is right
			for _, s := range clause.Body {
				ast.Inspect(s, func(n ast.Node) bool { return visitAfter(f, n, name, instead, &found) })
			}
			return false
		}
		return visitAfter(f, n, name, instead, &found)
	})
	return found
}

func visitAfter(f *file, n ast.Node, name, instead string, found *[]Violation) bool {
	stmt, ok := n.(*ast.ExprStmt)
	if !ok {
		return true
	}
	receive, ok := stmt.X.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return true
	}
	if call, ok := receive.X.(*ast.CallExpr); ok && isSelected(call.Fun, name, "After") {
		*found = append(*found, Violation{place: f.at(n), What: "<-time.After(…) sleeps", Instead: instead})
	}
	return true
}

func isSelected(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// uses finds selections of names from the package at path, called or passed on,
// and a dot import, which would hide them.
func uses(f *file, importPath string, names []string, instead string) []Violation {
	called := f.calledAs(importPath)
	switch called {
	case "", "_":
		return nil
	case ".":
		return []Violation{{place: f.at(f.ast.Name), What: "dot import of " + importPath, Instead: "import it under its name"}}
	}
	var found []Violation
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(names, sel.Sel.Name) && isSelected(sel, called, sel.Sel.Name) {
			found = append(found, Violation{place: f.at(n), What: importPath + "." + sel.Sel.Name, Instead: instead})
		}
		return true
	})
	return found
}

var skipLaw = Rule{
	Name: "skipped test",
	Law:  "No test skips itself: what is missing is a failure that says what to install.",
	find: eachFile(func(f *file) []Violation {
		if !f.test && !f.within("internal/testkit", "tests") {
			return nil
		}
		var found []Violation
		calls(f, func(call *ast.CallExpr, pkg, name string) {
			if pkg != "" && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name) || pkg == "testing" && name == "Short" {
				found = append(found, Violation{
					place: f.at(call), What: pkg + "." + name,
					Instead: "fail with t.Fatal and say what to install; move a slow test to test-system; narrow a rapid generator by Filter",
				})
			}
		})
		return found
	}),
}

// seededRandom are the names of math/rand/v2 that do not draw from the process's
// own, unseeded, source.
var seededRandom = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

var randomLaw = Rule{
	Name: "randomness",
	Law:  "math/rand (v1) is used nowhere; allocator and fencing, their tests included, use no randomness without a seed.",
	find: eachFile(func(f *file) []Violation {
		found := anyUse(f, "math/rand", nil, "use math/rand/v2, in tests with a source whose seed is printed, or rapid")
		if f.within("allocator", "fencing") {
			const instead = "a result depends on its inputs only; in tests draw by rapid or from rand.New(rand.NewPCG(seed, 0))"
			found = append(found, anyUse(f, "math/rand/v2", seededRandom, instead)...)
			found = append(found, anyUse(f, "crypto/rand", nil, instead)...)
		}
		return found
	}),
}

// anyUse finds selections from the package at path other than the allowed names.
func anyUse(f *file, importPath string, allowed []string, instead string) []Violation {
	called := f.calledAs(importPath)
	if called == "" {
		return nil
	}
	var found []Violation
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && isSelected(sel, called, sel.Sel.Name) && !slices.Contains(allowed, sel.Sel.Name) {
			found = append(found, Violation{place: f.at(n), What: importPath + "." + sel.Sel.Name, Instead: instead})
		}
		return true
	})
	return found
}

var statement = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE)\s+\S`)

var sqlLaw = Rule{
	Name: "SQL in Go",
	Law:  "SQL stands in .sql files, where it can be read, prepared and tested as SQL.",
	find: eachFile(func(f *file) []Violation {
		if f.test || f.within("internal/testkit") {
			return nil
		}
		var found []Violation
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if value, ok := stringLiteral(n); ok && statement.MatchString(value) {
				found = append(found, Violation{
					place: f.at(n), What: "a statement in a string",
					Instead: "put it in a .sql file beside the Go file, embed it by name, and pass values as parameters",
				})
			}
			return true
		})
		return found
	}),
}

func stringLiteral(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(lit.Value)
	return value, err == nil
}

var acceptedName = regexp.MustCompile(`(?i)accepted|admitted`)

var channelLaw = Rule{
	Name: "accepted requests in memory",
	Law:  "No channel in the process holds accepted requests.",
	find: eachFile(func(f *file) []Violation {
		var found []Violation
		refuse := func(n ast.Node, name string) {
			found = append(found, Violation{
				place: f.at(n), What: "the channel " + name,
				Instead: "an accepted request lives in the Redis stream, in Kafka or in the shard; a channel may carry arrivals that have no answer yet",
			})
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if ch, ok := n.(*ast.ChanType); ok && !f.test {
				if name := typeName(ch.Value); acceptedName.MatchString(name) {
					refuse(n, "of "+name)
				}
			}
			if field, ok := n.(*ast.Field); ok && !f.test {
				if _, isChan := field.Type.(*ast.ChanType); isChan {
					for _, id := range field.Names {
						if acceptedName.MatchString(id.Name) {
							refuse(id, id.Name)
						}
					}
				}
			}
			return true
		})
		return found
	}),
}

// typeName is the last name of a type expression: Request of *pkg.Request.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.ArrayType:
		return typeName(e.Elt)
	}
	return ""
}
