package tidy

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
)

// C-17 as rules: every goroutine has an owner that waits for it, goroutines started in a loop have
// a bound, a loop that goes on after an error waits, and a channel's capacity is written down.

// inCrowd are the lists for each element of which a goroutine is started without a bound on the spot: what
// bounds the list instead. A row without such a loop is a violation too.
var inCrowd = map[string]string{
	"cell/orders/consumer.go":               "the partitions of one fetch that this process owns",
	"controlplane/api/key_holders.go":       "replicas of the control plane",
	"controlplane/api/platform.go":          "replicas of the control plane",
	"controlplane/check/check.go":           "the parts of a cell: three",
	"controlplane/planner/operate.go":       "crew.take hands out so many operations of each kind",
	"controlplane/report/verify/cut.go":     "cells, of which a platform has 1,000: a cut is of one moment",
	"controlplane/report/verify/sampler.go": "cells, of which a platform has 1,000: a sample is of one moment",
	"controlplane/store/members.go":         "members of etcd",
	"controlplane/store/space.go":           "members of etcd",
	"deploy/local/boot/control.go":          "processes of the local platform",
	"deploy/local/boot/etcd.go":             "members of the local etcd",
	"deploy/local/boot/steps.go":            "steps of the local platform's start",
	"deploy/local/supervise/supervisor.go":  "processes of one tier",
	"edge/proxy/cells.go":                   "processes and streams of cells (edge.streams)",
	"internal/redisconn/watch.go":           "sentinels of one Redis",
}

var goroutineLaw = Rule{
	Name: "goroutine",
	Law:  "A goroutine belongs to a group that waits for it; a bare go tells its end on a channel of the function that starts it; in a loop it takes a place first, or its group has a limit.",
	find: func(t *tree) []Violation {
		var found []Violation
		crowded := map[string]bool{}
		for _, f := range t.files {
			if f.test || f.generated || f.within("internal/lifecycle", "internal/testkit") {
				continue
			}
			eachFunction(f, func(body *ast.BlockStmt) {
				found = append(found, bareGoroutines(f, body)...)
				for _, v := range crowds(f, body) {
					if crowded[f.path] = true; inCrowd[f.path] == "" {
						found = append(found, v)
					}
				}
			})
			if inCrowd[f.path] != "" && !crowded[f.path] {
				found = append(found, Violation{place: f.at(f.ast.Name), What: "a row of inCrowd without its loop", Instead: "take the row out"})
			}
		}
		return found
	},
}

// eachFunction calls do with the body of every function that is declared.
func eachFunction(f *file, do func(*ast.BlockStmt)) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			do(fn.Body)
		}
	}
}

// bareGoroutines finds go statements that tell nobody of the function when they end.
func bareGoroutines(f *file, body *ast.BlockStmt) []Violation {
	made := map[string]bool{} // channels that the function makes
	ast.Inspect(body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok {
			for i, right := range a.Rhs {
				if isMakeChan(right) && i < len(a.Lhs) {
					if id, ok := a.Lhs[i].(*ast.Ident); ok {
						made[id.Name] = true
					}
				}
			}
		}
		return true
	})
	var found []Violation
	ast.Inspect(body, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok && !mentions(g, made) {
			found = append(found, Violation{
				place: f.at(g), What: "a goroutine that nobody waits for",
				Instead: "start it by lifecycle.Group, sync.WaitGroup or errgroup; or close a channel when it ends and wait for that",
			})
		}
		return true
	})
	return found
}

func isMakeChan(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	_, isChan := call.Args[0].(*ast.ChanType)
	return ok && name.Name == "make" && isChan
}

func mentions(n ast.Node, names map[string]bool) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		yes = yes || ok && names[id.Name]
		return !yes
	})
	return yes
}

// crowds finds goroutines that a loop starts, one for each turn, without a bound.
func crowds(f *file, body *ast.BlockStmt) []Violation {
	if hasCall(body, "SetLimit") {
		return nil
	}
	var found []Violation
	eachLoop(body, func(loop *ast.BlockStmt) {
		for i, s := range loop.List {
			started := startsGoroutine(s)
			if started == nil || slices.ContainsFunc(loop.List[:i], takesPlace) {
				continue
			}
			found = append(found, Violation{
				place: f.at(started), What: "a goroutine for each turn of a loop",
				Instead: "give the group a SetLimit, or take a place of a channel first; where the list itself is short, say why in inCrowd (internal/tidy)",
			})
		}
	})
	return found
}

// eachLoop calls do with every loop's body.
func eachLoop(n ast.Node, do func(*ast.BlockStmt)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch loop := n.(type) {
		case *ast.ForStmt:
			do(loop.Body)
		case *ast.RangeStmt:
			do(loop.Body)
		}
		return true
	})
}

// startsGoroutine is where a statement starts one, itself or in a branch; a loop within answers for itself.
func startsGoroutine(s ast.Stmt) (at ast.Node) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt, *ast.FuncLit:
			return false
		case *ast.GoStmt:
			at = n
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
				at = n
			}
		}
		return at == nil
	})
	return at
}

// takesPlace: the statement waits until a channel has room, itself or by a function called take, or wait
// which gets the channel (of places, slots or turns).
func takesPlace(s ast.Stmt) (yes bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.SendStmt:
			yes = true
		case *ast.CallExpr:
			name := calledName(n)
			yes = yes || name == "take" || name == "wait" && mentions(n, map[string]bool{"places": true, "slots": true, "turns": true})
		}
		return !yes
	})
	return yes
}

func hasCall(n ast.Node, names ...string) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				yes = yes || slices.Contains(names, f.Sel.Name)
			case *ast.Ident:
				yes = yes || slices.Contains(names, f.Name)
			}
		}
		return !yes
	})
	return yes
}

var retryLaw = Rule{
	Name: "retry",
	Law:  "A loop without an end of its own that goes on after an error waits between its turns; a retry that does not wait is counted.",
	find: eachFile(func(f *file) []Violation {
		if f.test || f.within("internal/testkit") {
			return nil
		}
		var found []Violation
		eachFunction(f, func(body *ast.BlockStmt) {
			ast.Inspect(body, func(n ast.Node) bool {
				if loop, ok := n.(*ast.ForStmt); ok && endless(loop) && goesOnAfterError(loop.Body) && !waits(loop.Body) {
					found = append(found, Violation{
						place: f.at(loop), What: "a loop that goes on after an error, without end and without a wait",
						Instead: "wait between turns (clock.Clock's Sleep, a ticker, a select with ctx.Done()), doubled up to a limit; or count the tries in the loop's head",
					})
				}
				return true
			})
		})
		return found
	}),
}

// endless: the loop's head neither counts nor asks for anything but its context.
func endless(loop *ast.ForStmt) bool {
	if loop.Cond == nil {
		return loop.Post == nil || !counted(loop)
	}
	if c, ok := loop.Cond.(*ast.BinaryExpr); ok && (c.Op == token.EQL || c.Op == token.NEQ) && loop.Post == nil {
		return hasCall(c, "Err")
	}
	return false
}

// counted: the body compares what the head counts: for try := 1; ; try++ { … try == tries … }.
func counted(loop *ast.ForStmt) (yes bool) {
	post, ok := loop.Post.(*ast.IncDecStmt)
	if !ok {
		return false
	}
	counter, ok := post.X.(*ast.Ident)
	if !ok {
		return false
	}
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.BinaryExpr); ok && mentions(c, map[string]bool{counter.Name: true}) {
			yes = yes || slices.Contains([]token.Token{token.EQL, token.GEQ, token.GTR, token.LSS, token.LEQ}, c.Op)
		}
		return !yes
	})
	return yes
}

var errorName = regexp.MustCompile(`^err$|Err$|^err[A-Z0-9]`)

// goesOnAfterError: an error that a turn got does not end the loop, on at least one way.
func goesOnAfterError(body *ast.BlockStmt) bool {
	got, ends := false, false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				id, ok := l.(*ast.Ident)
				got = got || ok && errorName.MatchString(id.Name)
			}
		case *ast.IfStmt:
			ends = ends || speaksOfError(n.Cond) && exits(n.Body)
		case *ast.SwitchStmt: // each case that leaves may be the error's
			for _, c := range n.Body.List {
				clause := c.(*ast.CaseClause) //nolint:forcetypeassert // a switch holds nothing else
				ends = ends || slices.ContainsFunc(clause.List, speaksOfError) && exits(&ast.BlockStmt{List: clause.Body})
			}
		}
		return true
	})
	return got && !ends
}

// speaksOfError: the condition may hold because there is an error: err != nil, errors.Is(err, …), but not
// err == nil.
func speaksOfError(e ast.Expr) (yes bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if c, ok := n.(*ast.BinaryExpr); ok && c.Op == token.EQL {
			return false
		}
		id, ok := n.(*ast.Ident)
		yes = yes || ok && errorName.MatchString(id.Name)
		return !yes
	})
	return yes
}

// exits: the block's last statement leaves the loop or the function.
func exits(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch last := b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.BranchStmt:
		return last.Tok == token.BREAK || last.Tok == token.GOTO
	}
	return false
}

// waits: a turn waits for somebody: a channel, a clock, a stream, a store's answer to a poll.
func waits(body *ast.BlockStmt) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.SelectStmt:
			if !slices.ContainsFunc(n.Body.List, func(c ast.Stmt) bool { return c.(*ast.CommClause).Comm == nil }) { //nolint:forcetypeassert // a select holds nothing else
				yes = true
			}
			for _, c := range n.Body.List { // with a default it does not wait itself
				yes = yes || waits(&ast.BlockStmt{List: c.(*ast.CommClause).Body}) //nolint:forcetypeassert // as above
			}
			return false
		case *ast.UnaryExpr:
			yes = yes || n.Op == token.ARROW
		case *ast.CallExpr:
			yes = yes || waiter.MatchString(calledName(n))
		}
		return !yes
	})
	return yes
}

var waiter = regexp.MustCompile(`(?i)^(sleep|wait|pause|back_?off|recv|accept|poll|next)`)

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

var queueLaw = Rule{
	Name: "queue",
	Law:  "A channel's capacity is a constant, a setting, or the length of the list that goes through it.",
	find: eachFile(func(f *file) []Violation {
		if f.test || f.within("internal/testkit") {
			return nil
		}
		var found []Violation
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && isMakeChan(call) && len(call.Args) > 1 && !writtenDown(call.Args[1]) {
				found = append(found, Violation{
					place: f.at(call), What: "a channel whose capacity is computed",
					Instead: "use a constant or a setting with a maximum, refuse what does not fit, and say so",
				})
			}
			return true
		})
		return found
	}),
}

func writtenDown(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.Ident, *ast.SelectorExpr:
		return true
	case *ast.CallExpr:
		id, ok := e.Fun.(*ast.Ident)
		return ok && (id.Name == "len" || id.Name == "cap")
	}
	return false
}
