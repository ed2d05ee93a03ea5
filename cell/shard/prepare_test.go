package shard_test

import (
	"strings"
	"testing"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
)

// TestEveryStatementPrepares: each named statement is parsed and planned by PostgreSQL on the
// migrated schema, as the cell's own role.
func TestEveryStatementPrepares(t *testing.T) {
	b := newBench(t)
	conn := b.db.ConnAs(t, migrate.RoleApp)
	for name, text := range shard.Queries() {
		if strings.HasPrefix(text, "FETCH") {
			continue // needs its cursor; the snapshot's test runs it
		}
		if _, err := conn.Prepare(b.ctx, name, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
