package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/postgres"
	"github.com/cellquota/cellquota/internal/testkit"
)

// Who may be called how, with dev (Policy zero) and without; no refusal tells the password.
func TestAddresses(t *testing.T) {
	ca := testkit.NewAuthority(t).Issue(t.TempDir()).CA
	const yes, no = true, false
	for name, row := range map[string]struct {
		dsn          string
		dev, without bool // accepted
	}{
		"plain on loopback":         {"postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable", yes, no},
		"plain on localhost":        {"host=localhost user=u password=hunter2 sslmode=disable", yes, no},
		"nothing said, on loopback": {"postgres://u:hunter2@[::1]:1/d", yes, no},
		"a Unix socket":             {"host=/run/postgresql user=u password=hunter2", yes, yes},
		"plain elsewhere":           {"postgres://u:hunter2@db:1/d?sslmode=disable", no, no},
		"nothing said, elsewhere":   {"postgres://u:hunter2@db:1/d", no, no},
		"require":                   {"postgres://u:hunter2@db:1/d?sslmode=require", no, no},
		"require with authorities":  {"postgres://u:hunter2@db:1/d?sslmode=require&sslrootcert=" + ca, no, no},
		"verify-ca":                 {"postgres://u:hunter2@db:1/d?sslmode=verify-ca&sslrootcert=" + ca, no, no},
		"verify-full":               {"postgres://u:hunter2@db:1/d?sslmode=verify-full&sslrootcert=" + ca, yes, yes},
		"verify-full on loopback":   {"postgres://u:hunter2@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=" + ca, yes, yes},
		"two servers, verify-full":  {"postgres://u:hunter2@a:1,b:1/d?sslmode=verify-full&sslrootcert=" + ca, yes, yes},
		"two servers, one here":     {"postgres://u:hunter2@127.0.0.1:1,db:1/d?sslmode=disable", no, no},
		"an address by number":      {"postgres://u:hunter2@10.0.0.1:1/d?sslmode=disable", no, no},
		"a name that looks like it": {"postgres://u:hunter2@localhost.example:1/d?sslmode=disable", no, no},
	} {
		t.Run(name, func(t *testing.T) {
			for encrypted, accepted := range map[bool]bool{false: row.dev, true: row.without} {
				policy := postgres.Policy{Encrypted: encrypted}
				_, one := postgres.Parse(row.dsn, policy)
				_, pool := postgres.ParsePool(row.dsn, policy)
				for _, err := range []error{one, pool} {
					if accepted != (err == nil) || !accepted && !errors.Is(err, postgres.ErrPlainText) {
						t.Errorf("without dev %v: %v", encrypted, err)
					}
					if err != nil && strings.Contains(err.Error(), "hunter2") {
						t.Errorf("told the password: %v", err)
					}
				}
			}
		})
	}
}

// What cannot be read is not told either, but for the name of a file that is missing.
func TestUnreadableAddresses(t *testing.T) {
	for dsn, says := range map[string]string{
		"postgres://u:hun ter2@db:port/d":      "",
		"postgres://u:hunter2%zz@db/d":         "",
		"hunter2":                              "",
		"host=db password=hunter2 sslmode=tls": "",
		"postgres://u:hunter2@db/d?sslmode=verify-full&sslrootcert=/no/such/ca.pem": "/no/such/ca.pem",
	} {
		_, one := postgres.Parse(dsn, postgres.Policy{})
		_, pool := postgres.ParsePool(dsn, postgres.Policy{})
		for _, err := range []error{one, pool} {
			if !errors.Is(err, postgres.ErrAddress) || strings.Contains(err.Error(), "ter2") || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v", dsn, err)
			}
		}
	}
}

// A renewed file is what the next connection uses; a broken one changes nothing.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	file := testkit.NewAuthority(t).Issue(dir).CA
	pool, err := postgres.ParsePool("postgres://u@127.0.0.1:1/d?sslmode=verify-full&sslrootcert="+file, postgres.Policy{Encrypted: true})
	if err != nil {
		t.Fatal(err)
	}
	old := pool.ConnConfig.TLSConfig.RootCAs
	renew := func() bool {
		next := pool.ConnConfig.Copy()
		if err := pool.BeforeConnect(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		return !next.TLSConfig.RootCAs.Equal(old)
	}
	if renew() {
		t.Error("other authorities, and the file is the same")
	}
	testkit.NewAuthority(t).Issue(dir)
	if !renew() {
		t.Error("the authorities are the old ones")
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if renew() {
		t.Error("a broken file replaced what was read before")
	}
}
