package drift

import (
	"fmt"
	"go/ast"
	"path"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestUnreadSettings keeps the list of keys that a component has and does not read:
// no wiring selects the field, so setting it changes nothing.
func TestUnreadSettings(t *testing.T) {
	t.Parallel()
	r := house(t)
	var table strings.Builder
	table.WriteString("| program | key |\n|---|---|\n")
	for _, component := range []string{"controlplane", "cell", "edge"} {
		read := r.selected(component)
		keys := r.fields(t, component)
		if len(keys) < 10 {
			t.Fatalf("%s: only %d settings were found", component, len(keys))
		}
		for _, k := range keys {
			if !read[k.field] {
				fmt.Fprintf(&table, "| `cellquotad %s` | `%s` |\n", component, k.key)
			}
		}
	}
	r.generated(t, configurationPage, "unread", table.String())
}

// setting is a leaf of a Config type.
type setting struct{ field, key string }

// fields lists the leaves of a component's Config in the order of the source.
func (r *repository) fields(t *testing.T, component string) []setting {
	t.Helper()
	structs := map[string]*ast.StructType{}
	ast.Inspect(r.code[component+"/config.go"], func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	if structs["Config"] == nil {
		t.Fatalf("%s/config.go has no Config", component)
	}
	return leaves(structs, structs["Config"], "")
}

func leaves(structs map[string]*ast.StructType, s *ast.StructType, prefix string) []setting {
	var all []setting
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) == 0 {
			continue // config.Common, which internal/config and telemetry read
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			continue
		}
		key := prefix + reflect.StructTag(tag).Get("config")
		if id, ok := f.Type.(*ast.Ident); ok && structs[id.Name] != nil {
			all = append(all, leaves(structs, structs[id.Name], key+".")...)
			continue
		}
		all = append(all, setting{f.Names[0].Name, key})
	}
	return all
}

// selected are the names that the wiring of a component selects from something.
func (r *repository) selected(component string) map[string]bool {
	names := map[string]bool{}
	for name, file := range r.code {
		if path.Dir(name) != component || strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				names[sel.Sel.Name] = true
			}
			return true
		})
	}
	return names
}
