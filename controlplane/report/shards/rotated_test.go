package shards_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The file of a shard's address gets another one: the reader goes there without a
// restart, a read that was under way ends where it began, and the old connections go
// when it has. A file that is being written, or is gone, changes nothing.
func TestAnAddressThatIsRotated(t *testing.T) {
	template := testkit.Template{Name: "rotated", Setup: func(ctx context.Context, dsn string) error {
		if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
			return err
		}
		return migrate.Up(ctx, dsn)
	}}
	old, next := testkit.Postgres(t).Database(t, template), testkit.Postgres(t).Database(t, template)
	for cell, db := range map[string]*testkit.Database{"old": old, "next": next} {
		if _, err := db.Conn(t).Exec(testkit.Deadline(t), "SELECT cellquota.install($1, 'a')", cell); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "reader")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reader := shards.New(shards.Options{Timeout: 5 * time.Second})
	defer reader.Close()
	begin := func() *shards.Snapshot {
		t.Helper()
		s, err := reader.Snapshot(testkit.Deadline(t), file)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	reads := func(want string, s *shards.Snapshot) {
		t.Helper()
		defer s.Close(testkit.Deadline(t))
		if got, err := s.Fence(testkit.Deadline(t)); err != nil || got.Cell != want {
			t.Fatalf("the shard of %q, %v; want %s", got.Cell, err, want)
		}
	}
	write(old.As(migrate.RoleReader))
	reads("old", begin())
	running := begin()
	write("")
	reads("old", begin())
	write(next.As(migrate.RoleReader) + "\n")
	reads("next", begin())
	reads("old", running)
	testkit.Eventually(t, 20*time.Second, func() error {
		var n int
		err := old.Conn(t).QueryRow(testkit.Deadline(t), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cellquota-reader' AND datname = current_database()").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d connections of the old address", n)
		}
		return err
	})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	reads("next", begin())
}
