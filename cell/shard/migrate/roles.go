package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// The three roles of a shard (contract, section 1). Their names are fixed: the fence function ends
// the backends of the first by its name.
const (
	RoleApp    = "cellquota_app"    // the cell's processes
	RoleFencer = "cellquota_fencer" // the control plane, to fence, restore and activate
	RoleReader = "cellquota_reader" // views only: verify, trace, operators
)

// Passwords of the roles. An empty one leaves the role's password as it is (a new role then has
// none and can only log in where the server does not ask for one).
type Passwords struct {
	App, Fencer, Reader string
}

// CreateRoles makes the roles that are missing, sets the passwords that are given, and grants
// privileges if the schema is there. Roles belong to the whole server; repeats change nothing.
func CreateRoles(ctx context.Context, dsn string, passwords Passwords) error {
	db, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, r := range []struct{ name, password string }{
		{RoleApp, passwords.App}, {RoleFencer, passwords.Fencer}, {RoleReader, passwords.Reader},
	} {
		if err := createRole(ctx, db, r.name, r.password); err != nil {
			return err
		}
	}
	return grant(ctx, db)
}

func createRole(ctx context.Context, db *sql.DB, name, password string) error {
	if _, err := db.ExecContext(ctx, "CREATE ROLE "+name+" LOGIN"); err != nil && !isDuplicate(err) {
		return fmt.Errorf("create role %s: %w", name, err)
	}
	if password == "" {
		return nil
	}
	// ALTER ROLE takes no parameters; format quotes the literal on the server.
	var statement string
	err := db.QueryRowContext(ctx, passwordSQL, name, password).Scan(&statement)
	if err != nil {
		return fmt.Errorf("quote the password of %s: %w", name, err)
	}
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("set the password of %s: %w", name, errors.New("refused by the server"))
	}
	return nil
}

// isDuplicate recognises an object that another session made first: by its own check, or by the
// unique index behind it when both looked at the same moment.
func isDuplicate(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "42710", "42P06", "23505": // duplicate_object, duplicate_schema, unique_violation
		return true
	}
	return false
}
