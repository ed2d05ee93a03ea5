// Package migrations holds the shard's schema as SQL: numbered steps that are only ever added, and
// the privileges of the three roles.
//
// Promise: a step that was released is never changed; a program one step older or newer than the
// schema keeps working (so a step adds, and what it replaces goes one step later).
//
// Neighbours: cell/shard/migrate applies the files, cell/shard compares versions when it opens.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Files are the numbered steps, in goose's format.
//
//go:embed 0*.sql
var Files embed.FS

// Grants is run after every migration and after the roles were made; idempotent.
//
//go:embed grants.sql
var Grants string

// Latest is the number of the newest step in this program.
func Latest() (int64, error) {
	names, err := fs.Glob(Files, "0*.sql")
	if err != nil {
		return 0, err
	}
	var latest int64
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("migration %q has no number: %w", name, err)
		}
		latest = max(latest, n)
	}
	return latest, nil
}

// Tolerated tells whether a program whose newest step is own runs on a schema at step found: the
// same, one older or one newer (a rolling upgrade has both).
func Tolerated(own, found int64) bool { return found >= 1 && found >= own-1 && found <= own+1 }
