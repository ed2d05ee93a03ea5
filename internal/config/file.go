package config

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// fileLayer is what a file says: values by dotted key, and the line of each.
type fileLayer struct {
	values map[string]any
	lines  map[string]int
}

// readFile reads the YAML file at path. Known keys may hold a scalar or a list;
// a key that is neither known nor the beginning of a known one is reported.
func readFile(path string, known map[string]field, r *report) fileLayer {
	out := fileLayer{map[string]any{}, map[string]int{}}
	raw, err := readBounded(path)
	if err != nil {
		r.add("config", "must be a readable file: "+err.Error(), path)
		return out
	}
	tree, err := parser.ParseBytes(raw, 0)
	if err != nil {
		r.add("config", "must be valid YAML: "+err.Error(), path)
		return out
	}
	if len(tree.Docs) > 1 {
		r.add("config", "must be one YAML document", path)
		return out
	}
	w := walker{path: path, known: known, out: out, report: r}
	for _, doc := range tree.Docs {
		if doc.Body != nil {
			w.walk("", doc.Body)
		}
	}
	return out
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFile {
		return nil, errors.New("larger than 1 MiB")
	}
	return raw, nil
}

// walker flattens a YAML tree into keys.
type walker struct {
	path   string
	known  map[string]field
	out    fileLayer
	report *report
}

func (w walker) source(line int) string { return fmt.Sprintf("file %s:%d", w.path, line) }

func (w walker) walk(prefix string, node ast.Node) {
	switch n := node.(type) {
	case *ast.MappingNode:
		for _, pair := range n.Values {
			w.pair(prefix, pair)
		}
	case *ast.MappingValueNode:
		w.pair(prefix, n)
	case *ast.CommentGroupNode, *ast.NullNode:
	default:
		key := prefix
		if key == "" {
			key = "config"
		}
		w.report.add(key, "must be a mapping of keys", w.source(node.GetToken().Position.Line))
	}
}

func (w walker) pair(prefix string, pair *ast.MappingValueNode) {
	line := pair.Key.GetToken().Position.Line
	key := join(prefix, pair.Key.GetToken().Value)
	_, isKey := w.known[key]
	switch {
	case isKey:
		w.leaf(key, line, pair.Value)
	case w.isGroup(key):
		w.walk(key, pair.Value)
	default:
		w.report.add(key, "is not a key of this program", w.source(line))
	}
}

func (w walker) isGroup(key string) bool {
	for known := range w.known {
		if len(known) > len(key) && known[:len(key)] == key && known[len(key)] == '.' {
			return true
		}
	}
	return false
}

func (w walker) leaf(key string, line int, node ast.Node) {
	if _, twice := w.out.values[key]; twice {
		w.report.add(key, "must be given once", w.source(line))
		return
	}
	var v any
	if err := yaml.NodeToValue(node, &v); err != nil {
		w.report.add(key, "must be a plain value: "+err.Error(), w.source(line))
		return
	}
	w.out.values[key], w.out.lines[key] = v, line
}
