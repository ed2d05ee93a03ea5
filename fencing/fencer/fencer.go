package fencer

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/postgres"
)

//go:embed sql/install.sql
var installSQL string

//go:embed sql/fence.sql
var fenceSQL string

//go:embed sql/restore.sql
var restoreSQL string

//go:embed sql/activate.sql
var activateSQL string

//go:embed sql/raise_term.sql
var raiseTermSQL string

//go:embed sql/row.sql
var rowSQL string

//go:embed sql/stocks.sql
var stocksSQL string

// Options of a Fencer. The zero value of each has the default in brackets.
type Options struct {
	// ConnectTimeout bounds reaching the shard [3s].
	ConnectTimeout time.Duration
	// LockWait is how long writers may finish before their backends are ended [1s]; 1 ms to 1 min.
	LockWait time.Duration
	// Encrypted refuses an address without sslmode=verify-full also on loopback; off this
	// machine it is always refused.
	Encrypted bool
}

// Fencer is one connection to one shard under the fencer's role. Not for concurrent use.
type Fencer struct {
	conn     *pgx.Conn
	lockWait time.Duration
	canceled atomic.Bool // a notice said that synchronous replication was not awaited
}

// Open connects to the shard at dsn. ErrUnreachable when it does not answer in time;
// postgres.ErrAddress and postgres.ErrPlainText for an address that may not be used.
func Open(ctx context.Context, dsn string, o Options) (*Fencer, error) {
	cfg, err := postgres.Parse(dsn, postgres.Policy{Encrypted: o.Encrypted})
	if err != nil {
		return nil, fmt.Errorf("fencer address: %w: it is no address that can be read", ErrUnreachable) // the driver's text repeats it
	}
	f := &Fencer{lockWait: o.LockWait}
	if f.lockWait == 0 {
		f.lockWait = time.Second
	}
	if f.lockWait < time.Millisecond || f.lockWait > time.Minute {
		return nil, fmt.Errorf("fence.lock_timeout: %s: must be 1ms to 1m", f.lockWait)
	}
	cfg.ConnectTimeout = o.ConnectTimeout
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 3 * time.Second
	}
	cfg.RuntimeParams["application_name"] = "cellquota-fencer"
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "canceling wait for synchronous replication") {
			f.canceled.Store(true)
		}
	}
	if f.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, translate("connect", err, false)
	}
	return f, nil
}

// Close ends the connection.
func (f *Fencer) Close(ctx context.Context) error { return f.conn.Close(ctx) }

// Install writes the first fence row of cell for group, and answers the row's version. A repeat
// changes nothing; ErrOtherCell when the shard is somebody else's.
func (f *Fencer) Install(ctx context.Context, cell, group string) (fencing.Version, error) {
	var version int64
	err := f.inTx(ctx, "install", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, installSQL, cell, group).Scan(&version)
	})
	if err != nil {
		return 0, err
	}
	return fencing.VersionOf(version)
}

// Fence installs version as FENCED, seals what is available, and answers the proof. A repeat of the
// same version answers the same proof. version must be above the shard's: ErrVersionRefused.
func (f *Fencer) Fence(ctx context.Context, cell string, version fencing.Version, reason string) (fencing.Proof, error) {
	var raw []byte
	err := f.inTx(ctx, "fence", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, fenceSQL, cell, version.Int64(), reason, f.lockWait.Milliseconds()).Scan(&raw)
	})
	if err != nil {
		return fencing.Proof{}, err
	}
	proof, err := decodeProof(raw)
	if err != nil {
		return fencing.Proof{}, err
	}
	return proof, proof.Check()
}

// Restore gives a FENCED shard to group under version, settle-only. Idempotent.
func (f *Fencer) Restore(ctx context.Context, cell string, version fencing.Version, group, reason string) error {
	return f.inTx(ctx, "restore", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, restoreSQL, cell, version.Int64(), group, reason, f.lockWait.Milliseconds())
		return err
	})
}

// Activate lets a settle-only shard of this version sell again. Idempotent.
func (f *Fencer) Activate(ctx context.Context, cell string, version fencing.Version, reason string) error {
	return f.inTx(ctx, "activate", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, activateSQL, cell, version.Int64(), reason, f.lockWait.Milliseconds())
		return err
	})
}

// RaiseTerm raises the shard's term row before facts are read under a new leader. ErrTermRefused.
func (f *Fencer) RaiseTerm(ctx context.Context, term fencing.Term) error {
	return f.inTx(ctx, "raise term", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, raiseTermSQL, term.Count, term.ID)
		return err
	})
}

// inTx runs one transaction in READ COMMITTED and tells a commit that may have happened apart.
func (f *Fencer) inTx(ctx context.Context, verb string, run func(pgx.Tx) error) error {
	f.canceled.Store(false)
	tx, err := f.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return translate(verb, err, false)
	}
	if err := run(tx); err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx)) // the transaction is gone either way
		return translate(verb, err, false)
	}
	if err := tx.Commit(ctx); err != nil {
		return translate(verb, err, true)
	}
	if f.canceled.Load() {
		return fmt.Errorf("%s: committed without its standby: %w", verb, ErrUnknownOutcome)
	}
	return nil
}
