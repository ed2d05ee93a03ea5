package drift

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// maker is a function of a package that makes a metric out of a name it is given.
type maker struct {
	name, help, labels int // places of its arguments; labels is the first of the rest, −1: none
	kind               string
	fixed              []string // labels that it always gives
}

type search struct {
	dir    string
	words  map[string]string
	makers map[string]maker
	found  []metric
}

// findMakers looks for functions that pass a name on to Prometheus.
func (s *search) findMakers(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		s.consider(n.Name.Name, n.Type, n.Body)
	case *ast.AssignStmt:
		for i, right := range n.Rhs {
			if fn, ok := right.(*ast.FuncLit); ok && i < len(n.Lhs) {
				if id, ok := n.Lhs[i].(*ast.Ident); ok {
					s.consider(id.Name, fn.Type, fn.Body)
				}
			}
		}
	}
	return true
}

func (s *search) consider(name string, typ *ast.FuncType, body *ast.BlockStmt) {
	if body == nil {
		return
	}
	places := map[string]int{}
	rest := -1
	at := 0
	for _, field := range typ.Params.List {
		for _, id := range field.Names {
			places[id.Name] = at
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				rest = at
			}
			at++
		}
	}
	var fixed []string
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 1 {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && isPrometheus(sel) && strings.HasSuffix(sel.Sel.Name, "Vec") {
				fixed = s.always(call.Args[1])
			}
		}
		if lit, ok := n.(*ast.CompositeLit); ok && kindOf(lit.Type, "Opts") != "" {
			if place := placeOf(places, entry(lit, "Name")); place >= 0 {
				s.makers[name] = maker{name: place, help: placeOf(places, entry(lit, "Help")), labels: rest, kind: kindOf(lit.Type, "Opts"), fixed: fixed}
			}
		}
		if call, ok := n.(*ast.CallExpr); ok && kindOf(call.Fun, "NewDesc") != "" && len(call.Args) == 4 {
			if sum, ok := call.Args[0].(*ast.BinaryExpr); ok {
				if place := placeOf(places, sum.Y); place >= 0 {
					s.makers[name] = maker{name: place, help: placeOf(places, call.Args[1]), labels: rest, kind: "gauge"}
				}
			}
		}
		return true
	})
}

// findMetrics looks for constructors with a name written out.
func (s *search) findMetrics(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return true
	}
	if kindOf(call.Fun, "NewDesc") != "" && len(call.Args) == 4 {
		if sum, ok := call.Args[0].(*ast.BinaryExpr); ok {
			if name, ok := literal(sum.Y); ok {
				help, _ := literal(call.Args[1])
				s.keep(strings.TrimPrefix(name, "_"), "gauge", help, s.strings(call.Args[2]))
				return false
			}
		}
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "New") && isPrometheus(sel) && len(call.Args) > 0 {
		if name, help, kind := s.options(call.Args[0]); name != "" {
			var labels []string
			if len(call.Args) > 1 {
				labels = s.strings(call.Args[1])
			}
			s.keep(name, kind, help, labels)
			return false
		}
	}
	if name, help, kind := s.options(call); name != "" {
		m := s.makers[called(call)]
		labels := slices.Clone(m.fixed)
		if m.labels >= 0 {
			for _, arg := range call.Args[min(m.labels, len(call.Args)):] {
				labels = append(labels, s.word(arg))
			}
		}
		s.keep(name, kind, help, labels)
		return false
	}
	return true
}

func (s *search) keep(name, kind, help string, labels []string) {
	s.found = append(s.found, metric{name: name, kind: kind, help: help, labels: labels, dir: s.dir})
}

// options reads name and help from an Opts literal or from a call of a maker.
func (s *search) options(e ast.Expr) (name, help, kind string) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		if kind = kindOf(e.Type, "Opts"); kind == "" {
			return "", "", ""
		}
		name, _ = literal(entry(e, "Name"))
		help, _ = literal(entry(e, "Help"))
	case *ast.CallExpr:
		m, ok := s.makers[called(e)]
		if !ok || m.name >= len(e.Args) {
			return "", "", ""
		}
		kind = m.kind
		name, _ = literal(e.Args[m.name])
		if m.help >= 0 && m.help < len(e.Args) {
			help, _ = literal(e.Args[m.help])
		}
	}
	return name, help, kind
}

// always reads the labels of append([]string{…}, more...) or []string{…} in a maker.
func (s *search) always(e ast.Expr) []string {
	if call, ok := e.(*ast.CallExpr); ok && called(call) == "append" {
		return s.strings(call.Args[0])
	}
	return s.strings(e)
}

// strings reads []string{…}.
func (s *search) strings(e ast.Expr) []string {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var all []string
	for _, element := range lit.Elts {
		all = append(all, s.word(element))
	}
	return all
}

// word is a string literal, or a constant of telemetry.
func (s *search) word(e ast.Expr) string {
	if text, ok := literal(e); ok {
		return text
	}
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return s.words[sel.Sel.Name]
	}
	return "?"
}

// kindOf turns prometheus.CounterOpts into counter; "" for anything else.
func kindOf(e ast.Expr, suffix string) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || !isPrometheus(sel) {
		return ""
	}
	kind, found := strings.CutSuffix(sel.Sel.Name, suffix)
	if !found {
		return ""
	}
	if kind == "" {
		return suffix
	}
	return strings.ToLower(kind)
}

func isPrometheus(sel *ast.SelectorExpr) bool {
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == "prometheus"
}

func called(call *ast.CallExpr) string {
	if id, ok := call.Fun.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

func placeOf(places map[string]int, e ast.Expr) int {
	if id, ok := e.(*ast.Ident); ok {
		if place, ok := places[id.Name]; ok {
			return place
		}
	}
	return -1
}

// entry is the value of a key in a struct literal.
func entry(lit *ast.CompositeLit, key string) ast.Expr {
	for _, element := range lit.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if id, ok := pair.Key.(*ast.Ident); ok && id.Name == key {
				return pair.Value
			}
		}
	}
	return nil
}

// literal reads a string that is written out, also in several parts.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, ok1 := literal(e.X)
		right, ok2 := literal(e.Y)
		return left + right, ok1 && ok2 && e.Op == token.ADD
	}
	return "", false
}
