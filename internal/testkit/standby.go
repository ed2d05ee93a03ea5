package testkit

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// standbyName is a standby to its primary.
const standbyName = "standby"

// Standby starts a copy of the server that streams from it, and makes every commit of the server wait
// for the copy. It is gone when the test ends. Its settings are the server's defaults.
func (own *OwnPG) Standby(t testing.TB) *OwnPG {
	t.Helper()
	s, err := copyPostgres(own.server)
	if err != nil {
		t.Fatalf("start a standby: %v", err)
	}
	standby := &OwnPG{PG: newPG(s)}
	t.Cleanup(func() {
		standby.Resume(t)
		if err := s.discard(); err != nil {
			t.Errorf("end the standby: %v", err)
		}
	})
	logTailOnFailure(t, "standby", s.logFile())
	primary := own.connect(t)
	if _, err := primary.Exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = '"+standbyName+"'"); err != nil {
		t.Fatal(err)
	}
	if _, err := primary.Exec(t.Context(), "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	Eventually(t, postgresReady, func() error {
		var n int
		err := primary.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE application_name = $1 AND sync_state = 'sync'", standbyName).Scan(&n)
		if err == nil && n == 0 {
			err = fmt.Errorf("%s is not the synchronous standby yet", standbyName)
		}
		return err
	})
	return standby
}

// Promote makes a standby a primary, on a timeline of its own.
func (own *OwnPG) Promote(t testing.TB) {
	t.Helper()
	if _, err := own.connect(t).Exec(t.Context(), "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
}

// Addr is the server's host:port.
func (own *OwnPG) Addr() string { return own.server.port.addr() }

// connect is a superuser's connection beside every database of a test, closed when the test ends.
func (own *OwnPG) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), own.server.dsn("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// copyPostgres copies a running server and starts the copy as its standby.
func copyPostgres(from *pgServer) (*pgServer, error) {
	copier, err := findBinary("pg_basebackup")
	if err != nil {
		return nil, err
	}
	s := &pgServer{program: from.program, initer: from.initer, cred: from.cred}
	if s.home, err = newHome("standby", s.cred); err != nil {
		return nil, err
	}
	if s.port, err = leasePort(); err != nil {
		s.home.close()
		return nil, err
	}
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", from.port.number, standbyName)
	cmd := s.command(copier, "-D", s.home.path("data"), "-d", conninfo, "-X", "stream", "-c", "fast", "-R", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = s.discard()
		return nil, fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	s.conf = s.arguments(nil)
	if err := s.start(); err != nil {
		_ = s.discard()
		return nil, err
	}
	return s, nil
}
