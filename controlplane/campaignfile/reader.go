package campaignfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Fault is one fault of a file.
type Fault struct {
	Path   string // "skus[0].reserve"; empty: the file as a whole
	Line   int    // from 1; 0: unknown
	Column int    // from 1; 0: unknown
	Rule   string
}

// String is "line 12: skus[0].reserve: must not be above sale_limit (10000)".
func (f Fault) String() string {
	text := f.Rule
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	if f.Line > 0 {
		text = "line " + strconv.Itoa(f.Line) + ": " + text
	}
	return text
}

// Error gives the faults as one error with a violation for each; nil for none.
func Error(faults []Fault) error {
	var violations []rpcstatus.Violation
	for _, f := range faults {
		rule := f.Rule
		if f.Line > 0 {
			rule += fmt.Sprintf(" (line %d)", f.Line)
		}
		violations = append(violations, rpcstatus.Violation{Field: f.Path, Rule: rule})
	}
	return rpcstatus.Invalid(violations...)
}

const (
	maxBytes = 1 << 20
	maxDepth = 64
)

// file is one file being read.
type file struct {
	faults   []Fault
	warnings []string
	lines    map[string]*token.Position // path → where it stands
	refused  map[string]bool            // paths whose value could not be read
}

// parse gives the root mapping; nil with faults where there is none.
func parse(text string) (*file, *object) {
	f := &file{lines: map[string]*token.Position{}, refused: map[string]bool{}}
	if len(text) > maxBytes {
		f.fault("", nil, "must be at most 1048576 bytes")
		return f, nil
	}
	if deep(text) {
		f.fault("", nil, "must not be nested deeper than 64")
		return f, nil
	}
	tree, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f.syntax(err)
		return f, nil
	}
	var docs []ast.Node
	for _, d := range tree.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	if len(docs) != 1 {
		f.fault("", nil, fmt.Sprintf("must hold exactly one document, not %d", len(docs)))
		return f, nil
	}
	return f, f.object("", docs[0])
}

// deep refuses what would keep the parser busy for hours: brackets, or dashes
// on one line, nested deeper than any file of ours.
func deep(text string) bool {
	depth := 0
	for line := range strings.Lines(text) {
		dashes := 0
		for _, word := range strings.Fields(line) {
			if word != "-" && word != "?" {
				break
			}
			dashes++
		}
		if dashes > maxDepth || len(line)-len(strings.TrimLeft(line, " ")) > 4*maxDepth {
			return true
		}
		depth += strings.Count(line, "[") + strings.Count(line, "{")
		if depth > maxDepth*8 {
			return true
		}
		depth = max(0, depth-strings.Count(line, "]")-strings.Count(line, "}"))
	}
	return false
}

func (f *file) syntax(err error) {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		f.fault("", at.GetToken().Position, at.GetMessage())
		return
	}
	f.fault("", nil, "is not YAML: "+err.Error())
}

func (f *file) fault(path string, at *token.Position, rule string) {
	fault := Fault{Path: path, Rule: rule}
	if at != nil {
		fault.Line, fault.Column = at.Line, at.Column
	}
	f.faults = append(f.faults, fault)
	f.refused[path] = true
}

// add takes over the broken rules of a spec, except of values that could not be
// read, and gives each the line of its path or of the nearest one above it.
func (f *file) add(violations []rpcstatus.Violation) {
	for _, v := range violations {
		if f.unread(v.Field) || summed(v.Field) && f.unreadBelow(v.Field) {
			continue
		}
		f.fault(v.Field, f.position(v.Field), v.Rule)
	}
}

// unread tells whether the value at path, or what holds it, could not be read.
func (f *file) unread(path string) bool {
	for p := path; p != ""; p = above(p) {
		if f.refused[p] {
			return true
		}
	}
	return false
}

// summed tells whether a rule of the path adds up its values: with one that could
// not be read the sum says nothing.
func summed(path string) bool {
	return strings.HasSuffix(path, ".weights") || strings.HasSuffix(path, ".units")
}

func (f *file) unreadBelow(path string) bool {
	for p := range f.refused {
		if strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

func (f *file) position(path string) *token.Position {
	for p := path; ; p = above(p) {
		if at, ok := f.lines[p]; ok {
			return at
		}
		if p == "" {
			return nil
		}
	}
}

// above gives the path of what holds the value: "skus[0].reserve" → "skus[0]" → "skus".
func above(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// sorted gives the faults in order of lines.
func (f *file) sorted() []Fault {
	slices.SortStableFunc(f.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f.faults
}

// object is a mapping whose keys are asked for one by one; close reports the rest.
type object struct {
	f       *file
	path    string
	entries map[string]ast.Node
	keys    []string
	asked   map[string]bool
}

// object reads a mapping; a fault and nil where the node is another thing.
func (f *file) object(path string, n ast.Node) *object {
	if n == nil {
		return nil
	}
	f.lines[path] = n.GetToken().Position
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		f.fault(path, n.GetToken().Position, "must be a mapping of keys")
		return nil
	}
	o := &object{f: f, path: path, entries: map[string]ast.Node{}, asked: map[string]bool{}}
	for _, v := range values {
		o.enter(v)
	}
	return o
}

func (o *object) enter(v *ast.MappingValueNode) {
	key, ok := v.Key.(*ast.StringNode)
	at := v.Key.GetToken().Position
	if !ok {
		o.f.fault(o.path, at, fmt.Sprintf("key %.40q must be plain text", v.Key.String()))
		return
	}
	path := o.at(key.Value)
	if _, twice := o.entries[key.Value]; twice {
		o.f.fault(path, at, "is given twice")
		return
	}
	o.entries[key.Value] = v.Value
	o.keys = append(o.keys, key.Value)
	o.f.lines[path] = at
}

func (o *object) at(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// node gives the value of a key; nil where it is absent. A null is a fault: leave
// the key out for its default.
func (o *object) node(key string) ast.Node {
	o.asked[key] = true
	n := o.entries[key]
	if n == nil {
		return nil
	}
	switch n.(type) {
	case *ast.NullNode:
		o.f.fault(o.at(key), o.f.lines[o.at(key)], "must have a value; leave the key out for its default")
		return nil
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode, *ast.MergeKeyNode:
		o.f.fault(o.at(key), o.f.lines[o.at(key)], "aliases, anchors and tags are not used here")
		return nil
	}
	return n
}

// child gives the mapping under a key; an empty one where it is absent.
func (o *object) child(key string) *object {
	n := o.node(key)
	if n == nil {
		return &object{f: o.f, path: o.at(key), entries: map[string]ast.Node{}, asked: map[string]bool{}}
	}
	at := o.f.lines[o.at(key)]
	child := o.f.object(o.at(key), n)
	o.f.lines[o.at(key)] = at
	if child == nil {
		return &object{f: o.f, path: o.at(key), entries: map[string]ast.Node{}, asked: map[string]bool{}}
	}
	return child
}

// has tells whether a key is given.
func (o *object) has(key string) bool { _, ok := o.entries[key]; return ok }

// list gives the items under a key, with their paths noted.
func (o *object) list(key string) []ast.Node {
	n := o.node(key)
	if n == nil {
		return nil
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		o.f.fault(o.at(key), n.GetToken().Position, "must be a list")
		return nil
	}
	for i, item := range seq.Values {
		o.f.lines[fmt.Sprintf("%s[%d]", o.at(key), i)] = item.GetToken().Position
	}
	return seq.Values
}

// close reports the keys that nobody asked for.
func (o *object) close() {
	for _, k := range o.keys {
		if !o.asked[k] {
			o.f.fault(o.at(k), o.f.lines[o.at(k)], "is not a known key")
		}
	}
}
