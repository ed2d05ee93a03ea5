package shards

import (
	"bytes"
	"context"
	"crypto/sha256"
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

// Reader holds a small pool per shard, opened at first use by the cell's reader_dsn_file,
// and again when what the file holds has changed: a password was rotated.
type Reader struct {
	o     Options
	mu    sync.Mutex
	pools map[string]opened // by the file that names the shard
	// leaving are the ends of pools that were replaced; Close waits for them.
	leaving sync.WaitGroup
}

// opened is a pool and the digest of what its file held.
type opened struct {
	pool *pgxpool.Pool
	of   [sha256.Size]byte
}

// New makes a Reader; Close ends it.
func New(o Options) *Reader {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxConns < 1 || o.MaxConns > 10 {
		o.MaxConns = 3
	}
	return &Reader{o: o, pools: map[string]opened{}}
}

// Close ends every pool.
func (r *Reader) Close() {
	r.mu.Lock()
	for file, in := range r.pools {
		in.pool.Close()
		delete(r.pools, file)
	}
	r.mu.Unlock()
	r.leaving.Wait()
}

// pool gives the pool of the address that the file holds now. One that was opened by
// an older address ends when the reads that it serves have ended, and those are
// bounded. A file that cannot be read now, or holds nothing, leaves the pool that there
// is: it is being written.
func (r *Reader) pool(dsnFile string) (*pgxpool.Pool, error) {
	dsn, err := secretfile.Read(context.Background(), dsnFile) // never waits
	r.mu.Lock()
	defer r.mu.Unlock()
	old, had := r.pools[dsnFile]
	of := sha256.Sum256(dsn)
	if had && (err != nil || of == old.of || len(bytes.TrimSpace(dsn)) == 0) {
		return old.pool, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrUnreachable, dsnFile, secretfile.Class(err))
	}
	pool, err := r.open(dsnFile, string(dsn))
	if err != nil {
		return nil, err
	}
	r.pools[dsnFile] = opened{pool, of}
	if had {
		r.leaving.Go(old.pool.Close)
	}
	return pool, nil
}

func (r *Reader) open(dsnFile, dsn string) (*pgxpool.Pool, error) {
	cfg, err := postgres.ParsePool(dsn, postgres.Policy{Encrypted: r.o.Encrypted})
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
