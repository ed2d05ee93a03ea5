package drift

import (
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the generated tables again")

// repository is what the tests look at, read once.
type repository struct {
	dir   string
	fset  *token.FileSet
	pages []string             // Markdown files, from the root, with slashes
	code  map[string]*ast.File // Go files that are not generated
}

var outside = map[string]bool{".git": true, ".bin": true, ".cache": true, ".dev": true, "testdata": true, "zz_deps": true}

var open = sync.OnceValues(func() (*repository, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	r := &repository{dir: dir, fset: token.NewFileSet(), code: map[string]*ast.File{}}
	return r, fs.WalkDir(os.DirFS(dir), ".", r.add)
})

// root is the nearest folder above with a go.mod.
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

func (r *repository) add(name string, d fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case d.IsDir() && outside[d.Name()]:
		return fs.SkipDir
	case path.Ext(name) == ".md":
		r.pages = append(r.pages, name)
	case path.Ext(name) == ".go" && !strings.HasSuffix(name, ".pb.go"):
		file, err := parser.ParseFile(r.fset, filepath.Join(r.dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		r.code[name] = file
	}
	return nil
}

func house(t *testing.T) *repository {
	t.Helper()
	r, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *repository) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// parts finds "<!-- generated: NAME -->", what follows, and "<!-- end -->".
var parts = regexp.MustCompile(`(?s)<!-- generated: ([a-z-]+) -->\n(.*?)<!-- end -->`)

// generated compares the table called name in page with what the code says, or
// writes it with -update.
func (r *repository) generated(t *testing.T, page, name, want string) {
	t.Helper()
	text := r.read(t, page)
	found := false
	fresh := parts.ReplaceAllStringFunc(text, func(part string) string {
		m := parts.FindStringSubmatch(part)
		if m[1] != name {
			return part
		}
		found = true
		return "<!-- generated: " + name + " -->\n" + want + "<!-- end -->"
	})
	switch {
	case !found:
		t.Errorf("%s has no table %q: put <!-- generated: %s --> and <!-- end --> where it belongs", page, name, name)
	case fresh == text:
	case *update:
		if err := os.WriteFile(filepath.Join(r.dir, filepath.FromSlash(page)), []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: table %q is not what the code says; run go test ./docs/drift -update and look at the difference", page, name)
	}
}

// constants are the string constants of a Go file whose name starts with prefix.
func (r *repository) constants(t *testing.T, name, prefix string) map[string]string {
	t.Helper()
	file, ok := r.code[name]
	if !ok {
		t.Fatalf("%s is not there any more", name)
	}
	found := map[string]string{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.ValueSpec) //nolint:forcetypeassert // a const declaration holds nothing else
			for i, id := range spec.Names {
				if strings.HasPrefix(id.Name, prefix) && i < len(spec.Values) {
					if text, ok := literal(spec.Values[i]); ok {
						found[id.Name] = text
					}
				}
			}
		}
	}
	return found
}
