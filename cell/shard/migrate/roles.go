package migrate

import (
	"context"
	"database/sql"
	_ "embed" // the statements of this file
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
	if err := createRoles(ctx, db, passwords); err != nil {
		return err
	}
	return grant(ctx, db)
}

//go:embed create_roles.sql
var createRolesSQL string

//go:embed set_password.sql
var setPasswordSQL string

// createRoles makes roles and passwords in one transaction, which holds the turn that create_roles.sql
// took until the passwords are set.
func createRoles(ctx context.Context, db *sql.DB, passwords Passwords) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("create roles: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, createRolesSQL); err != nil {
		return fmt.Errorf("create roles: %w", err)
	}
	for _, r := range []struct{ name, password string }{
		{RoleApp, passwords.App}, {RoleFencer, passwords.Fencer}, {RoleReader, passwords.Reader},
	} {
		if err := setPassword(ctx, tx, r.name, r.password); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("create roles: %w", err)
	}
	return nil
}

func setPassword(ctx context.Context, tx *sql.Tx, name, password string) error {
	if password == "" {
		return nil
	}
	var statement string
	if err := tx.QueryRowContext(ctx, setPasswordSQL, name, password).Scan(&statement); err != nil {
		return fmt.Errorf("quote the password of %s: %w", name, errRefused)
	}
	if _, err := tx.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("set the password of %s: %w", name, errRefused)
	}
	return nil
}

// errRefused stands for the server's own words, which may quote the password.
var errRefused = errors.New("refused by the server")

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
