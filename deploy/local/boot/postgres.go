package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/supervise"
)

const (
	postgresConfName = "cellquota.conf"
	// duplicateDatabase is PostgreSQL's SQLSTATE for a database that is there.
	duplicateDatabase = "42P04"
)

// shardServer is a PostgreSQL server of a cell as its account sees it.
type shardServer struct {
	cell    layout.Cell
	store   layout.Store
	home    string // as we see it
	path    string // the same, as the account reaches it
	handles []string
}

func (b *boot) shardServer(c layout.Cell, store layout.Store) (shardServer, error) {
	s := shardServer{cell: c, store: store, home: b.plan.PostgresHome(store)}
	if err := os.MkdirAll(s.home, 0o700); err != nil {
		return s, err
	}
	if err := own(s.home, b.account); err != nil {
		return s, err
	}
	s.path, s.handles = pathFor(s.home, b.account)
	return s, nil
}

// spec is the server. Its SIGINT is the fast shutdown, which does not wait for
// clients to leave.
func (b *boot) postgresSpec(s shardServer) supervise.Spec {
	args := []string{"postgres", "-D", filepath.Join(s.path, filepath.Base(b.plan.PostgresData(s.store)))}
	if b.tls != nil { // a whole path: a relative one would be below the directory that the server is started in
		args = append(args, "-c", "hba_file="+filepath.Join(s.path, layout.PostgresHBA))
	}
	return supervise.Spec{
		Name: s.store.Name, Path: b.programs.Postgres,
		Args:  args,
		Env:   append(b.env, "LC_ALL=C"),
		RunAs: b.account, Handles: s.handles, Dir: "/",
		Log:      b.plan.Log(s.store.Name),
		Probe:    postgresProbe(b.adminDSN(s)),
		StopWith: syscall.SIGINT, Tier: tierStores,
	}
}

// adminDSN reaches the server before there is a database of ours.
func (b *boot) adminDSN(s shardServer) string {
	return b.plan.ServerDSN(b.secrets, s.cell, s.store, layout.RoleSuperuser, "postgres")
}

// startPostgres makes the data directory once, then starts the server on it.
func (b *boot) startPostgres(ctx context.Context, s shardServer) error {
	conf := filepath.Join(s.home, postgresConfName)
	if err := b.give(conf, b.plan.Postgres(s.cell)); err != nil {
		return err
	}
	if err := b.postgresTLS(s); err != nil {
		return err
	}
	if err := b.initdb(ctx, s); err != nil {
		return err
	}
	if err := b.vacate(ctx, b.plan.PostgresData(s.store)); err != nil {
		return err
	}
	return b.startUntilReady(ctx, s.store.Name)
}

// postgresTLS gives the server its certificate and the rule that lets in nobody without
// TLS; without --tls it does nothing.
func (b *boot) postgresTLS(s shardServer) error {
	if b.tls == nil {
		return nil
	}
	mine := b.plan.Identity(s.store.Name)
	for to, from := range map[string]string{layout.PostgresCert: mine.Cert, layout.PostgresKey: mine.Key} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := b.give(filepath.Join(s.home, to), string(text)); err != nil {
			return err
		}
	}
	return b.give(filepath.Join(s.home, layout.PostgresHBA), layout.PostgresHBAText)
}

// initdb makes the data directory under another name and renames it when it is
// whole.
func (b *boot) initdb(ctx context.Context, s shardServer) error {
	data := b.plan.PostgresData(s.store)
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		return nil
	}
	if err := os.RemoveAll(data + ".new"); err != nil {
		return err
	}
	password := filepath.Join(s.home, "password")
	if err := b.give(password, b.secrets.Password(s.cell, layout.RoleSuperuser)+"\n"); err != nil {
		return err
	}
	err := supervise.RunOnce(ctx, supervise.Spec{
		Name: "initdb", Path: b.programs.Initdb,
		Args: []string{
			"initdb", "-D", filepath.Join(s.path, filepath.Base(data)+".new"),
			"--username=" + string(layout.RoleSuperuser), "--pwfile=" + filepath.Join(s.path, "password"),
			"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions",
		},
		Env: append(b.env, "LC_ALL=C"), RunAs: b.account, Handles: s.handles, Dir: "/",
		Log: b.plan.Log(s.store.Name),
	})
	if err := errors.Join(err, os.Remove(password)); err != nil {
		return err
	}
	if err := includeOurs(filepath.Join(data+".new", "postgresql.conf")); err != nil {
		return err
	}
	return os.Rename(data+".new", data)
}

// includeOurs makes the server read our file after its own; ALTER SYSTEM still
// comes after both.
func includeOurs(conf string) error {
	f, err := os.OpenFile(conf, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\ninclude '../%s'\n", postgresConfName)
	return errors.Join(err, f.Close())
}

// give writes a file that only the account may read.
func (b *boot) give(file, text string) error {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return own(file, b.account)
}

// createDatabase makes the shard's database unless it is there.
func createDatabase(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{layout.Database}.Sanitize())
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == duplicateDatabase {
		return nil
	}
	return err
}
