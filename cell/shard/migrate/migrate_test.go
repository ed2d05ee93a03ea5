package migrate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestUpBringsAnEmptyShardToTheProgramsStep(t *testing.T) {
	t.Parallel()
	db := testkit.Postgres(t).Database(t, testkit.Template{})
	ctx := testkit.Deadline(t)
	own, err := migrations.Latest()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := migrate.Check(ctx, db.DSN()); !errors.Is(err, migrate.ErrOutOfReach) && own > 1 || r.Schema != 0 || int64(len(r.Pending)) != own {
		t.Fatalf("an empty shard: %+v, %v", r, err)
	}
	for range 2 { // the second changes nothing
		if err := migrate.Up(ctx, db.DSN()); err != nil {
			t.Fatal(err)
		}
		if r, err := migrate.Check(ctx, db.DSN()); err != nil || r.Schema != own || len(r.Pending) != 0 {
			t.Fatalf("after up: %+v, %v", r, err)
		}
	}
}

// TestPasswordsAreQuoted: a password may hold whatever a secret store makes.
func TestPasswordsAreQuoted(t *testing.T) {
	t.Parallel()
	own := testkit.OwnPostgres(t, nil) // roles belong to the server
	db := own.Database(t, testkit.Template{Name: "schema", Setup: migrate.Up})
	ctx := testkit.Deadline(t)
	for _, password := range []string{`it's; DROP ROLE cellquota_app; --`, `back\slash "quoted" %L $1`, "用户"} {
		err := migrate.CreateRoles(ctx, db.DSN(), migrate.Passwords{App: password, Fencer: "", Reader: password})
		if err != nil {
			t.Fatalf("password %q: %v", password, err)
		}
	}
	with := map[string]bool{migrate.RoleApp: true, migrate.RoleFencer: false, migrate.RoleReader: true}
	for role, want := range with {
		if got := hasPassword(ctx, t, db, role); got != want {
			t.Errorf("role %s has a password: %v, want %v", role, got, want)
		}
	}
}

func hasPassword(ctx context.Context, t *testing.T, db *testkit.Database, role string) (has bool) {
	t.Helper()
	err := db.Conn(t).QueryRow(ctx, "SELECT rolpassword IS NOT NULL FROM pg_authid WHERE rolname = $1", role).Scan(&has)
	if err != nil {
		t.Fatalf("role %s: %v", role, err)
	}
	return has
}
