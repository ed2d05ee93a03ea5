package drift

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// same says what a page has too much and too little.
func same(t *testing.T, page, what string, have, want map[string]bool) {
	t.Helper()
	if len(want) == 0 {
		t.Fatalf("no %s was found in the code: the search is broken", what)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !have[name] {
			t.Errorf("%s lacks the %s %q", page, what, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !want[name] {
			t.Errorf("%s has the %s %q, which the code does not", page, what, name)
		}
	}
}

// firstCells are the names in back quotes that rows of a page's tables start with,
// below a heading and up to the next one.
func (r *repository) firstCells(t *testing.T, page, heading string) map[string]bool {
	t.Helper()
	_, text, found := strings.Cut(r.read(t, page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

// TestEtcdKeys compares the page with the table of folders of the store, and the
// message of each with the protos.
func TestEtcdKeys(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/reference/etcd-keys.md"
	folders := map[string]bool{}
	ast.Inspect(r.code["controlplane/store/keys.go"], func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || spec.Names[0].Name != "rooms" {
			return true
		}
		for _, element := range spec.Values[0].(*ast.CompositeLit).Elts { //nolint:forcetypeassert // a map literal
			folder, _ := literal(element.(*ast.KeyValueExpr).Value) //nolint:forcetypeassert // of pairs
			folders[folder] = true
		}
		return false
	})
	documented := map[string]bool{}
	for key := range r.firstCells(t, page, "Keys") {
		folder := key
		if at := strings.Index(key[1:], "/"); at >= 0 {
			folder = key[:at+2]
		}
		documented[folder] = true
	}
	same(t, page, "folder", documented, folders)
	protos := r.read(t, "proto/cellquota/store/v1/store.proto") + r.read(t, "proto/cellquota/store/v1/witness.proto")
	for _, m := range regexp.MustCompile("(?m)^\\| `/[^|]*\\| `([A-Za-z]+)`").FindAllStringSubmatch(r.read(t, page), -1) {
		if !strings.Contains(protos, "\nmessage "+m[1]+" {") {
			t.Errorf("%s names the message %s, which proto/cellquota/store/v1 does not have", page, m[1])
		}
	}
}

// TestRedisKeys compares the page with the key grammar in its file's comment and
// with the words that the key functions write; the fields with the Lua files.
func TestRedisKeys(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page, source = "docs/reference/redis-keys.md", "cell/admission/keys.go"
	documented, made := r.firstCells(t, page, "Keys"), map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(cq:\S+)`).FindAllStringSubmatch(r.read(t, source), -1) {
		made[m[1]] = true
	}
	same(t, page, "key", documented, made)

	parts, kinds := map[string]bool{}, map[string]bool{"meta": true, "held": true}
	for _, d := range r.code[source].Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && receiver(fn) == "buildKeys" {
			kinds[fn.Name.Name] = true
		}
	}
	for key := range documented {
		_, rest, _ := strings.Cut(key, "}:")
		kind, _, _ := strings.Cut(strings.TrimPrefix(rest, "BUILD:"), ":")
		parts[kind] = true
	}
	same(t, page, "kind of key", parts, kinds)
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) != 1 {
		return ""
	}
	id, ok := fn.Recv.List[0].Type.(*ast.Ident)
	if !ok {
		return ""
	}
	return id.Name
}

// TestRedisFields looks each field that the page lists for a hash up in the scripts
// and in the Go that writes it.
func TestRedisFields(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/reference/redis-keys.md"
	var source strings.Builder
	for _, name := range []string{"admit", "effect", "install", "read", "returns", "acked"} {
		source.WriteString(r.read(t, "cell/admission/lua/"+name+".lua"))
	}
	source.WriteString(r.read(t, "cell/admission/install.go") + r.read(t, "cell/admission/meta.go"))
	for _, heading := range []string{"Fields of meta", "Fields of a record", "Fields of stats"} {
		fields := r.firstCells(t, page, heading)
		if len(fields) == 0 {
			t.Errorf("%s lists nothing under %q", page, heading)
		}
		for field := range fields {
			name, _, of := strings.Cut(field, ":")
			if of {
				name += ":"
			}
			if !strings.Contains(source.String(), "'"+name) && !strings.Contains(source.String(), `"`+name) {
				t.Errorf("%s has the field %q, which no script writes", page, field)
			}
		}
	}
	for _, m := range regexp.MustCompile(`redis\.call\('HMGET', keys\[\d+\], ([^)]*)\)`).FindAllStringSubmatch(source.String(), -1) {
		for _, f := range regexp.MustCompile(`'([a-z_]+):?'`).FindAllStringSubmatch(m[1], -1) {
			if !strings.Contains(r.read(t, page), "\n| `"+f[1]) {
				t.Errorf("%s lacks the field %q, which a script reads", page, f[1])
			}
		}
	}
}

// TestKafka compares headers, event types, topics and client names with the
// vocabulary of cell/events.
func TestKafka(t *testing.T) {
	t.Parallel()
	r := house(t)
	const page = "docs/reference/kafka.md"
	same(t, page, "header", r.firstCells(t, page, "Headers"), values(r.constants(t, "cell/events/headers.go", "Header")))
	same(t, page, "event type", r.firstCells(t, page, "Event types"), values(r.constants(t, "cell/events/names.go", "Type")))
	names := r.constants(t, "cell/events/names.go", "")
	text := r.read(t, page)
	for _, topic := range []string{names["OrderEventsTopic"], names["admissionsTopicPrefix"] + "CELL"} {
		if !strings.Contains(text, "| `"+topic+"`") {
			t.Errorf("%s does not name the topic %q", page, topic)
		}
	}
	protos := r.read(t, "proto/cellquota/events/v1/events.proto")
	for _, m := range regexp.MustCompile("(?m)^\\| `[a-z-]+` \\| `([A-Za-z]+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(protos, "\nmessage "+m[1]+" {") {
			t.Errorf("%s names the message %s, which events.proto does not have", page, m[1])
		}
	}
}

func values(constants map[string]string) map[string]bool {
	set := map[string]bool{}
	for _, v := range constants {
		set[v] = true
	}
	return set
}
