// Package migrations holds the shard's schema as SQL: numbered steps that are only ever added, and
// the privileges of the three roles.
//
// Promise: a step that was released is never changed; a program runs on a schema one step newer, and
// on older ones down to the last release's (so a step adds, and what it replaces goes a release later).
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

// released is the newest step of the last release: its schemas are what a rolling upgrade begins on,
// however many steps the next release has.
const released = 2

// Tolerated tells whether a program whose newest step is own runs on a schema at step found: the
// same, an older one down to the last release's (at least one older), or one newer.
func Tolerated(own, found int64) bool {
	return found >= 1 && found >= min(own-1, released) && found <= own+1
}
