package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib" // database/sql, which goose speaks to
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/internal/postgres"
)

// versionTable lies in the schema itself, so that a dump of the schema carries its own step.
const versionTable = "cellquota.goose_db_version"

// ErrOutOfReach is wrapped by Check when schema and program are more than one step apart.
var ErrOutOfReach = errors.New("schema is out of this program's reach")

// Report is what Check found.
type Report struct {
	Schema  int64 // step of the database; 0: not migrated at all
	Program int64 // newest step of this program
	Pending []string
}

// Up brings the schema at dsn to this program's newest step, then grants the roles that exist
// their privileges. Several at once wait for one another by an advisory lock.
func Up(ctx context.Context, dsn string) error {
	db, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := createSchema(ctx, db); err != nil {
		return err
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the shard: %w", err)
	}
	return grant(ctx, db)
}

// Check compares the schema at dsn with this program and changes nothing. The error wraps
// ErrOutOfReach when servers of this program would refuse to run.
func Check(ctx context.Context, dsn string) (Report, error) {
	own, err := migrations.Latest()
	if err != nil {
		return Report{}, err
	}
	db, err := open(ctx, dsn)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = db.Close() }()
	report := Report{Program: own}
	if report.Schema, err = schemaStep(ctx, db); err != nil {
		return report, err
	}
	for n := report.Schema + 1; n <= own; n++ {
		report.Pending = append(report.Pending, fmt.Sprintf("%05d", n))
	}
	if !migrations.Tolerated(own, report.Schema) {
		return report, fmt.Errorf("%w: schema is at step %d, the program at %d: run cellquotad migrate up", ErrOutOfReach, report.Schema, own)
	}
	return report, nil
}

func open(ctx context.Context, dsn string) (*sql.DB, error) {
	cfg, err := postgres.Parse(dsn, postgres.Policy{}) // run by hand: nobody says here whether this is development
	if err != nil {
		return nil, fmt.Errorf("dsn-file: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reach the shard: %w", err), db.Close())
	}
	return db, nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return p, nil
}

// createSchema makes the schema, because goose's table lies in it. Two at once may both see it
// missing; the loser finds it there.
func createSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS cellquota")
	if err != nil && !isDuplicate(err) {
		return fmt.Errorf("create the schema: %w", err)
	}
	return nil
}

func schemaStep(ctx context.Context, db *sql.DB) (int64, error) {
	var exists bool
	if err := db.QueryRowContext(ctx, existsSQL, versionTable).Scan(&exists); err != nil {
		return 0, fmt.Errorf("look for the schema: %w", err)
	}
	if !exists {
		return 0, nil
	}
	var step int64
	err := db.QueryRowContext(ctx, stepSQL).Scan(&step)
	if err != nil {
		return 0, fmt.Errorf("read the schema's step: %w", err)
	}
	return step, nil
}

func grant(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, migrations.Grants); err != nil {
		return fmt.Errorf("grant privileges: %w", err)
	}
	return nil
}
