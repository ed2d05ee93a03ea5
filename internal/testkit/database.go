package testkit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Template is a schema that many tests start from. It is built once per server,
// on first use, and then copied (about 20 ms).
type Template struct {
	// Name tells templates apart within a test binary; one name, one schema.
	Name string
	// Setup migrates the empty database that dsn (of the superuser postgres)
	// leads to and closes its connections. Roles belong to the whole server, so
	// a Setup that creates them must accept that they exist. Setups never run at
	// the same time. nil leaves the database empty.
	Setup func(ctx context.Context, dsn string) error
}

// PG is a running PostgreSQL server on which tests make databases.
type PG struct {
	server *pgServer

	mu        sync.Mutex        // serialises building and copying templates
	templates map[string]string // template name → database
	count     atomic.Int64
}

// shared is the one server of this test binary.
var shared = sync.OnceValues(func() (*PG, error) {
	server, err := newPostgres(nil)
	if err != nil {
		return nil, err
	}
	return newPG(server), nil
})

func newPG(server *pgServer) *PG {
	return &PG{server: server, templates: map[string]string{}}
}

// Postgres is the server that all tests of this test binary share, started on
// first use. It ends with the test binary. A test that stops, pauses or
// configures its server takes OwnPostgres instead.
func Postgres(t testing.TB) *PG {
	t.Helper()
	pg, err := shared()
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	return pg
}

// Database makes a fresh database from template, for this test only; it is
// dropped, with whatever is still connected, when the test ends.
func (pg *PG) Database(t testing.TB, template Template) *Database {
	t.Helper()
	db, err := pg.create(Deadline(t), template)
	if err != nil {
		t.Fatalf("make a database from template %q: %v", template.Name, err)
	}
	t.Cleanup(func() {
		if err := pg.exec(context.WithoutCancel(t.Context()), "DROP DATABASE IF EXISTS "+quote(db.Name)+" WITH (FORCE)"); err != nil {
			t.Logf("drop database %s: %v", db.Name, err)
		}
	})
	logTailOnFailure(t, "PostgreSQL", pg.server.logFile())
	return db
}

func (pg *PG) create(ctx context.Context, template Template) (*Database, error) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	from, err := pg.templateLocked(ctx, template)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("test_%d", pg.count.Add(1))
	if err := pg.exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(from)); err != nil {
		return nil, err
	}
	return &Database{Name: name, server: pg.server}, nil
}

// templateLocked is the database that holds the template, built when missing. A
// Setup that failed is tried again by the next test, on a new database.
func (pg *PG) templateLocked(ctx context.Context, template Template) (string, error) {
	if template.Setup == nil {
		return "template1", nil
	}
	if name, built := pg.templates[template.Name]; built {
		return name, nil
	}
	name := fmt.Sprintf("template_%d", pg.count.Add(1))
	if err := pg.exec(ctx, "CREATE DATABASE "+quote(name)); err != nil {
		return "", err
	}
	if err := template.Setup(ctx, pg.server.dsn("postgres", name)); err != nil {
		return "", fmt.Errorf("set-up: %w", err)
	}
	// A connection that Setup left open would make every copy fail.
	err := pg.exec(ctx, "ALTER DATABASE "+quote(name)+" WITH ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '"+name+"'")
	if err != nil {
		return "", err
	}
	pg.templates[template.Name] = name
	return name, nil
}

// exec runs statements on the maintenance database, one connection for all.
func (pg *PG) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, pg.server.dsn("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// Database is one test's database.
type Database struct {
	Name   string
	server *pgServer
}

// DSN is the address for the superuser postgres.
func (db *Database) DSN() string { return db.As("postgres") }

// As is the address for role, which needs no password here (the server trusts
// loopback) but must exist and be allowed to log in.
func (db *Database) As(role string) string { return db.server.dsn(role, db.Name) }

// Addr is the server's host:port, for a fault proxy in between.
func (db *Database) Addr() string { return db.server.port.addr() }

// Conn is a new connection as the superuser, closed when the test ends.
func (db *Database) Conn(t testing.TB) *pgx.Conn { return db.ConnAs(t, "postgres") }

// ConnAs is a new connection as role, closed when the test ends.
func (db *Database) ConnAs(t testing.TB, role string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(Deadline(t), db.As(role))
	if err != nil {
		t.Fatalf("connect as %s: %v", role, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// Pool is a new pool as role, closed when the test ends.
func (db *Database) Pool(t testing.TB, role string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(Deadline(t), db.As(role))
	if err != nil {
		t.Fatalf("pool as %s: %v", role, err)
	}
	t.Cleanup(pool.Close)
	return pool
}
