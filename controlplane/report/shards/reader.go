package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cellquota/cellquota/internal/postgres"
	"github.com/cellquota/cellquota/internal/secretfile"
)

// ErrUnreachable: the shard did not answer. What it holds is unknown, not zero.
var ErrUnreachable = errors.New("the shard does not answer its reader")

// Options of a Reader; zero values have the default in brackets.
type Options struct {
	// Timeout bounds one read of one shard [5s].
	Timeout time.Duration
	// MaxConns per shard [3], at most 10: reports must not take a shard's connections from its cell.
	MaxConns int32
	// Encrypted refuses an address without sslmode=verify-full also on loopback; off this
	// machine it is always refused.
	Encrypted bool
}

// Reader holds a small pool per shard, opened at first use by the cell's reader_dsn_file.
type Reader struct {
	o     Options
	mu    sync.Mutex
	pools map[string]*pgxpool.Pool // by the file that names the shard
}

// New makes a Reader; Close ends it.
func New(o Options) *Reader {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxConns < 1 || o.MaxConns > 10 {
		o.MaxConns = 3
	}
	return &Reader{o: o, pools: map[string]*pgxpool.Pool{}}
}

// Close ends every pool.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for file, pool := range r.pools {
		pool.Close()
		delete(r.pools, file)
	}
}

func (r *Reader) pool(dsnFile string) (*pgxpool.Pool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pool, ok := r.pools[dsnFile]; ok {
		return pool, nil
	}
	dsn, err := secretfile.Read(context.Background(), dsnFile) // never waits
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrUnreachable, dsnFile, secretfile.Class(err))
	}
	cfg, err := postgres.ParsePool(string(dsn), postgres.Policy{Encrypted: r.o.Encrypted})
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", ErrUnreachable, dsnFile, err)
	}
	cfg.MaxConns, cfg.MaxConnIdleTime = r.o.MaxConns, time.Minute
	cfg.ConnConfig.ConnectTimeout = r.o.Timeout
	cfg.ConnConfig.RuntimeParams["application_name"] = "cellquota-reader"
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg) // lives as long as the Reader; Close ends it
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	r.pools[dsnFile] = pool
	return pool, nil
}

// Snapshot is one REPEATABLE READ, READ ONLY transaction on one shard. Close it.
type Snapshot struct{ tx pgx.Tx }

// Snapshot begins one. ErrUnreachable.
func (r *Reader) Snapshot(ctx context.Context, dsnFile string) (*Snapshot, error) {
	pool, err := r.pool(dsnFile) //nolint:contextcheck // the pool outlives the call that opened it; Close ends it
	if err != nil {
		return nil, err
	}
	begin, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	tx, err := pool.BeginTx(begin, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &Snapshot{tx: tx}, nil
}

// Close ends the transaction; nothing is lost by it.
func (s *Snapshot) Close(ctx context.Context) { _ = s.tx.Rollback(context.WithoutCancel(ctx)) }

// collect runs one query and gathers its rows.
func collect[T any](ctx context.Context, s *Snapshot, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := s.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	out, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return out, nil
}
