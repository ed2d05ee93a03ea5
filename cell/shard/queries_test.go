package shard

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestParseQueriesRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"twice": "-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;", "empty": "-- name: a\n\n-- name: b\nSELECT 1;",
	} {
		if _, err := parseQueries(fstest.MapFS{"x.sql": {Data: []byte(text)}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	got, err := parseQueries(fstest.MapFS{"x.sql": {Data: []byte("-- head\n\n-- name: a\nSELECT 1 -- one\n;\n")}})
	if err != nil || !strings.HasPrefix(got["a"], "SELECT 1") || strings.Contains(got["a"], ";") {
		t.Errorf("read %q, %v", got, err)
	}
}

// Queries is for the test that prepares every statement.
func Queries() map[string]string { return queries }

// PoolParams are the settings of every connection of a store.
func PoolParams(t testing.TB, dsn string) map[string]string {
	t.Helper()
	pc, err := poolConfig(Config{DSN: dsn}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return pc.ConnConfig.RuntimeParams
}

// BeginPage begins the transaction of one page of a comparison.
func BeginPage() string { return inOrder.BeginQuery }
