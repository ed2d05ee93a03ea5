package shard

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// queryFiles hold every statement of this package as "-- name: subject_verb" blocks.
//
//go:embed *.sql
var queryFiles embed.FS

// queries maps a name to its SQL. A malformed file or a name used twice is a bug that every start
// and every test hits, so it panics.
var queries = mustParse(queryFiles)

// sql is the statement of a name; an unknown name is a bug of this package.
func sql(name string) string {
	q, ok := queries[name]
	if !ok {
		panic("shard: no query named " + name)
	}
	return q
}

func mustParse(files fs.FS) map[string]string {
	out, err := parseQueries(files)
	if err != nil {
		panic("shard: " + err.Error())
	}
	return out
}

func parseQueries(files fs.FS) (map[string]string, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		blocks := strings.Split("\n"+string(text), "\n-- name: ")
		for _, block := range blocks[1:] {
			name, body, _ := strings.Cut(block, "\n")
			name = strings.TrimSpace(name)
			body = strings.TrimSuffix(strings.TrimSpace(body), ";")
			if _, twice := out[name]; twice || name == "" || body == "" {
				return nil, fmt.Errorf("%s: query %q is empty or named twice", file, name)
			}
			out[name] = body
		}
	}
	return out, nil
}
