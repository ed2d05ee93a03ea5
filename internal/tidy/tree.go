package tidy

import (
	"bufio"
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// tree is the repository as the rules see it.
type tree struct {
	module string // path of the module, from go.mod
	files  []*file
	texts  []text // what is not Go: SQL, Lua, protos, scripts, configuration
	fset   *token.FileSet
}

// file is one parsed Go file.
type file struct {
	path      string // from the repository's root, with slashes
	dir       string
	test      bool // *_test.go, or in a package that only tests import (see supportsTests)
	generated bool // "Code generated … DO NOT EDIT."
	ast       *ast.File
	fset      *token.FileSet
}

type text struct {
	path    string
	content []byte
}

// outside are folders that hold nothing of ours. zz_deps only pins versions.
var outside = map[string]bool{".git": true, ".bin": true, ".cache": true, ".dev": true, "testdata": true, "vendor": true, "zz_deps": true}

var textKinds = map[string]bool{".sql": true, ".lua": true, ".proto": true, ".sh": true, ".yaml": true, ".yml": true, ".html": true, ".js": true, ".css": true}

// read parses every Go file below the root of fsys, which holds a go.mod.
func read(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	var err error
	if t.module, err = modulePath(fsys); err != nil {
		return nil, err
	}
	return t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && outside[d.Name()]:
			return fs.SkipDir
		case d.IsDir():
			return nil
		case path.Ext(name) == ".go":
			return t.add(fsys, name)
		case textKinds[path.Ext(name)]:
			content, err := fs.ReadFile(fsys, name)
			t.texts = append(t.texts, text{name, content})
			return err
		}
		return nil
	})
}

func (t *tree) add(fsys fs.FS, name string) error {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.files = append(t.files, &file{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go") || supportsTests(path.Dir(name)),
		generated: ast.IsGenerated(parsed), ast: parsed, fset: t.fset,
	})
	return nil
}

// supportsTests reports whether a folder or import path is a package for tests, by
// Go's custom of calling it so (storetest, like httptest): a suite that every
// implementation runs, or the one fake of a neighbour. testkitLaw keeps it out of
// production.
func supportsTests(dir string) bool { return strings.HasSuffix(path.Base(dir), "test") }

func modulePath(fsys fs.FS) (string, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(bytes.NewReader(mod)); lines.Scan(); {
		if name, found := strings.CutPrefix(lines.Text(), "module "); found {
			return strings.TrimSpace(name), nil
		}
	}
	return "", errors.New("go.mod names no module")
}

// at makes a violation's place of a node.
func (f *file) at(n ast.Node) place { return place{f.path, f.fset.Position(n.Pos()).Line} }

// within reports whether the file lies in one of the folders or below.
func (f *file) within(dirs ...string) bool {
	for _, dir := range dirs {
		if covers(dir+"/...", f.dir) {
			return true
		}
	}
	return false
}

// calledAs returns what package path is called in the file, or "" when it is not
// imported: "time", or the name it is imported under.
func (f *file) calledAs(importPath string) string {
	for _, imp := range f.ast.Imports {
		if importedPath(imp) != importPath {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		name := path.Base(importPath)
		if strings.HasPrefix(name, "v") && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(importPath)) // math/rand/v2 is rand
		}
		return name
	}
	return ""
}

func importedPath(imp *ast.ImportSpec) string { return strings.Trim(imp.Path.Value, "`\"") }
