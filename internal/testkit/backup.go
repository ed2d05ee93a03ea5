package testkit

import (
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Backup is a copy of a server's data as it was at one moment.
type Backup struct {
	own *OwnPG
	dir string
}

// Backup takes a base backup of the running server, with the log that it needs.
func (own *OwnPG) Backup(t testing.TB) *Backup {
	t.Helper()
	copier, err := findBinary("pg_basebackup")
	if err != nil {
		t.Fatal(err)
	}
	b := &Backup{own: own, dir: own.server.home.path("backup")}
	cmd := own.server.command(copier, "-D", b.dir, "-d", own.server.dsn("postgres", "postgres"), "-X", "stream", "-c", "fast", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	return b
}

// Restore puts the backup in the place of the server's data and starts it: the same address, the same
// history, less of it.
func (b *Backup) Restore(t testing.TB) {
	t.Helper()
	b.own.replaceData(t, func() error {
		return b.own.server.command("cp", "-a", b.dir, b.own.server.home.path("data")).Run()
	})
}

// Empty puts a new data directory in the place of the server's and starts it: the same address, another
// system id, no database.
func (own *OwnPG) Empty(t testing.TB) {
	t.Helper()
	own.replaceData(t, own.server.initdb)
}

// Create makes a database of this name and sets it up: what an operator does who begins anew.
func (own *OwnPG) Create(t testing.TB, name string, template Template) {
	t.Helper()
	if err := own.exec(t.Context(), "CREATE DATABASE "+quote(name)); err != nil {
		t.Fatal(err)
	}
	if err := template.Setup(t.Context(), own.server.dsn("postgres", name)); err != nil {
		t.Fatal(err)
	}
}

func (own *OwnPG) replaceData(t testing.TB, fill func() error) {
	t.Helper()
	own.Kill(t)
	if err := os.RemoveAll(own.server.home.path("data")); err != nil {
		t.Fatal(err)
	}
	if err := fill(); err != nil {
		t.Fatalf("fill the data directory: %v", err)
	}
	own.Start(t)
}

// AsyncStandby starts a standby that no commit waits for: what it has not received is lost when it is
// promoted.
func (own *OwnPG) AsyncStandby(t testing.TB) *OwnPG {
	t.Helper()
	standby := own.Standby(t)
	primary := own.connect(t)
	for _, statement := range []string{"ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"} {
		if _, err := primary.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return standby
}

// TakeOver kills the primary and makes this standby the primary at its own address. The tail that it had
// not received, because it was detached, is lost.
func (own *OwnPG) TakeOver(t testing.TB, primary *OwnPG) {
	t.Helper()
	primary.Kill(t)
	own.Promote(t)
	conn, err := pgx.Connect(t.Context(), own.server.dsn("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var recovering bool
	if err := conn.QueryRow(t.Context(), "SELECT pg_is_in_recovery()").Scan(&recovering); err != nil || recovering {
		t.Fatalf("the standby was not promoted: recovering %t, %v", recovering, err)
	}
}

// Existing is a database that came with the server's data.
func (pg *PG) Existing(name string) *Database { return &Database{Name: name, server: pg.server} }

// Detach makes a standby receive nothing more: what its primary commits from now on is a tail that it
// never has.
func (own *OwnPG) Detach(t testing.TB) {
	t.Helper()
	conn := own.connect(t)
	for _, statement := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	Eventually(t, postgresReady, func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_wal_receiver").Scan(&n)
		if err == nil && n > 0 {
			err = errors.New("the standby receives yet")
		}
		return err
	})
}
