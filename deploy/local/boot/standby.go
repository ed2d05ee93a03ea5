package boot

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/supervise"
)

//go:embed slot.sql
var createSlotSQL string

//go:embed standbys.sql
var standbysSQL string

const (
	// duplicateObject is PostgreSQL's SQLSTATE for a replication slot that is there.
	duplicateObject = "42710"
	standbySignal   = "standby.signal"
	syncedEvery     = 50 * time.Millisecond
)

// startStandby copies the primary once, starts the standby on the copy, and waits until the primary
// waits for it: from then on what is committed is in both.
func (b *boot) startStandby(ctx context.Context, s, primary shardServer) error {
	if err := b.give(filepath.Join(s.home, postgresConfName), b.plan.PostgresStandby(s.cell, b.secrets)); err != nil {
		return err
	}
	if err := b.basebackup(ctx, s, primary); err != nil {
		return err
	}
	if err := b.vacate(ctx, b.plan.PostgresData(s.store)); err != nil {
		return err
	}
	if err := b.startUntilReady(ctx, s.store.Name); err != nil {
		return err
	}
	return b.synced(ctx, primary)
}

// basebackup makes the standby's data directory under another name and renames it when it is whole. One
// that is no standby any more was promoted: the other server is behind it, and to start both as
// primaries would give two shards of one cell.
func (b *boot) basebackup(ctx context.Context, s, primary shardServer) error {
	data := b.plan.PostgresData(s.store)
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		if _, err := os.Stat(filepath.Join(data, standbySignal)); err != nil {
			return fmt.Errorf("%w: %s was promoted in this data directory; take a new --data-dir", layout.ErrOption, s.store.Name)
		}
		return nil
	}
	if err := os.RemoveAll(data + ".new"); err != nil {
		return err
	}
	if err := createSlot(ctx, b.adminDSN(primary)); err != nil {
		return err
	}
	from, err := pgconn.ParseConfig(b.adminDSN(primary))
	if err != nil {
		return err
	}
	err = supervise.RunOnce(ctx, supervise.Spec{
		Name: "pg_basebackup", Path: b.programs.Basebackup,
		Args: []string{
			"pg_basebackup", "-D", filepath.Join(s.path, filepath.Base(data)+".new"), "-X", "stream", "-c", "fast", "-S", layout.StandbyName,
			"-h", from.Host, "-p", fmt.Sprint(from.Port), "-U", from.User, "-w",
		},
		Env:   append(b.env, "LC_ALL=C", "PGPASSWORD="+from.Password),
		RunAs: b.account, Handles: s.handles, Dir: "/", Log: b.plan.Log(s.store.Name),
	})
	if err != nil {
		return err
	}
	if err := b.give(filepath.Join(data+".new", standbySignal), ""); err != nil {
		return err
	}
	return os.Rename(data+".new", data)
}

// createSlot makes the primary keep what its standby still needs.
func createSlot(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, createSlotSQL, layout.StandbyName)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == duplicateObject {
		return nil
	}
	return err
}

// synced waits until the standby is the one that commits wait for.
func (b *boot) synced(ctx context.Context, primary shardServer) error {
	conn, err := pgx.Connect(ctx, b.adminDSN(primary))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := b.clk.NewTicker(syncedEvery)
	defer tick.Stop()
	for {
		var n int
		err := conn.QueryRow(ctx, standbysSQL, layout.StandbyName).Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return fmt.Errorf("%s does not stream: %w", layout.StandbyName, ctx.Err())
		}
	}
}
