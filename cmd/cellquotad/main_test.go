package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/testkit"
)

// stdout runs f and gives what it printed.
func stdout(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = before }()
	read := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(r)
		read <- text
	}()
	f()
	_ = w.Close()
	return string(bytes.TrimSpace(<-read))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"nothing"},
		{"migrate"},
		{"migrate", "sideways", "--dsn-file", "/dev/null"},
		{"migrate", "up"},
		{"migrate", "up", "--dsn-file", "f", "more"},
		{"migrate", "up", "--nothing"},
		{"cell", "--nothing"},
		{"cell", "--cell-id", "UPPER"},
		{"edge"},
		{"controlplane", "--config", "/nowhere.yaml"},
	} {
		if err := dispatch(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want wrong usage", args, err)
		}
	}
	text := stdout(t, func() {
		for _, args := range [][]string{{"--help"}, {"cell", "--help"}, {"migrate", "--help"}, {"migrate", "up", "--help"}} {
			if err := dispatch(t.Context(), args); err != nil && !errors.Is(err, config.ErrHandled) {
				t.Errorf("%q: %v", args, err)
			}
		}
	})
	for name := range commands {
		if !strings.Contains(text, name) {
			t.Errorf("--help does not name %s", name)
		}
	}
	if !strings.Contains(text, "--shard-dsn-file") {
		t.Error("cell --help does not name its keys")
	}
}

// The environment of a platform reaches every child: a key of another server is none of our business,
// an unknown one is an error.
func TestEnvironmentOfOtherServers(t *testing.T) {
	t.Setenv("CELLQUOTA_ETCD_ENDPOINTS", "127.0.0.1:1")
	t.Setenv("CELLQUOTA_ENDPOINTS", "somewhere")
	err := dispatch(t.Context(), []string{"edge"})
	if err == nil || strings.Contains(err.Error(), "ETCD") || strings.Contains(err.Error(), "CELLQUOTA_ENDPOINTS") {
		t.Fatalf("%v", err)
	}
	t.Setenv("CELLQUOTA_NOTHING", "x")
	if err := dispatch(t.Context(), []string{"edge"}); err == nil || !strings.Contains(err.Error(), "CELLQUOTA_NOTHING") {
		t.Fatalf("an unknown variable passed: %v", err)
	}
}

// TestMigrate brings a fresh database up, in either order with the roles, and says where it stands.
func TestMigrate(t *testing.T) {
	db := testkit.Postgres(t).Database(t, testkit.Template{Name: "empty"})
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dsn := file("dsn", db.DSN())
	must := func(args ...string) string {
		t.Helper()
		return stdout(t, func() {
			if code := run(args); code != exitDone {
				t.Errorf("%q: exit %d", args, code)
			}
		})
	}
	if code := run([]string{"migrate", "check", "--dsn-file", dsn}); code != exitUnexpected {
		t.Errorf("an empty database passed the check: exit %d", code)
	}
	must("migrate", "up", "--dsn-file", dsn)
	must("migrate", "create-roles", "--dsn-file", dsn, "--app-password-file", file("app", "a"), "--fencer-password-file", file("fencer", "f"),
		"--reader-password-file", file("reader", "r"))
	if text := must("migrate", "check", "--dsn-file", dsn); !strings.Contains(text, "pending 0") {
		t.Errorf("check says %q", text)
	}
	must("migrate", "up", "--dsn-file", dsn) // again
	conn := db.ConnAs(t, "cellquota_reader")
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM cellquota.v_orders").Scan(&n); err != nil {
		t.Errorf("the reader cannot read: %v", err)
	}
}
