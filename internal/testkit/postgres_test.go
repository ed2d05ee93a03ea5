package testkit

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var twoTables = Template{Name: "two tables", Setup: func(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	// Left open on purpose: a template must be copied all the same.
	_, err = conn.Exec(ctx, "CREATE TABLE a (n int); CREATE TABLE b (n int); INSERT INTO a VALUES (1)")
	return err
}}

func count(t *testing.T, db *Database, table string) int {
	t.Helper()
	var n int
	if err := db.Conn(t).QueryRow(Deadline(t), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDatabasesOfOneTemplateAreApart(t *testing.T) {
	t.Parallel()
	pg := Postgres(t)
	one, two := pg.Database(t, twoTables), pg.Database(t, twoTables)
	if _, err := one.Pool(t, "postgres").Exec(Deadline(t), "INSERT INTO a VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	if n, m := count(t, one, "a"), count(t, two, "a"); n != 2 || m != 1 {
		t.Fatalf("rows: %d in the one, %d in the other; want 2 and 1", n, m)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	pg := Postgres(t)
	var name string
	t.Run("inner", func(t *testing.T) { name = pg.Database(t, Template{}).Name })
	left := pg.Database(t, Template{})
	var found bool
	err := left.Conn(t).QueryRow(Deadline(t), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found)
	if err != nil || found {
		t.Fatalf("database %s is still there (%v)", name, err)
	}
}

func TestFailedTemplateIsTriedAgain(t *testing.T) {
	t.Parallel()
	pg := Postgres(t)
	broken, tries := errors.New("broken"), 0
	template := Template{Name: "fails once", Setup: func(context.Context, string) error {
		if tries++; tries == 1 {
			return broken
		}
		return nil
	}}
	if _, err := pg.create(t.Context(), template); !errors.Is(err, broken) {
		t.Fatalf("error = %v, want the set-up's", err)
	}
	for range 2 {
		if _, err := pg.create(t.Context(), template); err != nil {
			t.Fatal(err)
		}
	}
	if tries != 2 {
		t.Fatalf("set-up ran %d times, want 2", tries)
	}
}

func TestOwnPostgresKeepsCommitsOverACrash(t *testing.T) {
	t.Parallel()
	own := OwnPostgres(t, map[string]string{"max_connections": "20"})
	db := own.Database(t, twoTables)
	own.Kill(t)
	own.Start(t)
	if n := count(t, db, "a"); n != 1 {
		t.Fatalf("%d rows after a crash, want 1", n)
	}
	own.Stop(t)
	own.Start(t)
	if n := count(t, db, "a"); n != 1 {
		t.Fatalf("%d rows after a restart, want 1", n)
	}
}

func TestPausedPostgresAnswersAfterResume(t *testing.T) {
	t.Parallel()
	own := OwnPostgres(t, nil)
	conn := own.Database(t, twoTables).Conn(t)
	own.Pause(t)
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "INSERT INTO b VALUES (1)")
		answered <- err
	}()
	Hold(t, 200*time.Millisecond, "the backend is stopped")
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	default:
	}
	own.Resume(t)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}

func TestPostgresDoesNotRunAsRoot(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(Postgres(t).server.home.path("data"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(info); uid == 0 {
		t.Fatal("the data directory belongs to root")
	}
}
