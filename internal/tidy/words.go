package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The words are put together here so that this file does not hold them.
var (
	marker     = regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"}, "|") + `)\b`)
	unfinished = regexp.MustCompile(`(?i)\bnot (yet )?implem` + `ented\b`)
)

const markerInstead = "finish it, or open an issue and say in the comment what the code does today and where it ends"

var markerLaw = Rule{
	Name: "left-over marker",
	Law:  "Nothing is left for later in the code: no marker words, nothing that says it is unfinished.",
	find: func(t *tree) []Violation {
		found := eachFile(markersIn)(t)
		for _, x := range t.texts {
			for i, line := range bytes.Split(x.content, []byte("\n")) {
				if word := leftOver(string(line)); word != "" {
					found = append(found, Violation{place: place{x.path, i + 1}, What: word, Instead: markerInstead})
				}
			}
		}
		return found
	},
}

func leftOver(s string) string {
	if word := marker.FindString(s); word != "" {
		return word
	}
	return unfinished.FindString(s)
}

// markersIn looks at comments for all words, and at strings for "unfinished" where
// they are not a test's, which may well demand that somebody says so.
func markersIn(f *file) []Violation {
	var found []Violation
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if word := leftOver(c.Text); word != "" {
				found = append(found, Violation{place: f.at(c), What: word, Instead: markerInstead})
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if value, ok := stringLiteral(n); ok && !f.test {
			if word := unfinished.FindString(value); word != "" {
				found = append(found, Violation{place: f.at(n), What: word, Instead: markerInstead})
			}
		}
		return true
	})
	return found
}

// emptyNames say nothing about what is inside, so everything ends there.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "lib"}

var nameLaw = Rule{
	Name: "package name",
	Law:  "A package is named for what it knows, never util, common, helpers, types, misc or the like.",
	find: eachFile(func(f *file) []Violation {
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		if slices.Contains(emptyNames, name) || slices.Contains(emptyNames, path.Base(f.dir)) {
			return []Violation{{
				place: f.at(f.ast.Name), What: "package " + f.ast.Name.Name + " in " + f.dir,
				Instead: "name it for what it knows, or move each function to the room that uses it",
			}}
		}
		return nil
	}),
}

var docLaw = Rule{
	Name: "package comment",
	Law:  "Every package says in one comment what its job is, what it promises and who its neighbours are.",
	find: func(t *tree) []Violation {
		first, documented := map[string]*file{}, map[string]bool{}
		for _, f := range t.files {
			if first[f.dir] == nil {
				first[f.dir] = f
			}
			documented[f.dir] = documented[f.dir] || f.generated || describes(f)
		}
		var found []Violation
		for dir, f := range first {
			if !documented[dir] {
				found = append(found, Violation{
					place: f.at(f.ast.Name), What: "no comment of the package in " + dir,
					Instead: fmt.Sprintf("write doc.go that begins %q and tells job, promise and neighbours", opening(f)+" …"),
				})
			}
		}
		return found
	},
}

// describes reports whether the file carries a package comment worth the name.
func describes(f *file) bool {
	if f.ast.Doc == nil {
		return false
	}
	comment := f.ast.Doc.Text()
	return strings.HasPrefix(comment, opening(f)) && len(comment) >= 40
}

// opening is how the comment begins, by Go's custom.
func opening(f *file) string {
	name := strings.TrimSuffix(f.ast.Name.Name, "_test")
	if name == "main" {
		return "Command " + path.Base(f.dir)
	}
	return "Package " + name
}
