package shard

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/postgres"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
)

// Store is the shard as this process sees it. Safe for concurrent use.
type Store struct {
	cfg     Config
	pool    *pgxpool.Pool
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
	fenced  func(Writer)
	doubted func(Doubt)
	memory  memory

	// keepsRefunds: the schema has the table of refunds (step 2). A program on the step before records
	// what is to be refunded with the payment alone; the refund loop of a later one takes it up.
	keepsRefunds bool

	retentionKnown atomic.Bool // the schema archives (step 9)
	switchKnown    atomic.Bool // the schema has the cell's switch (step 2)
	tokensKnown    atomic.Bool // its ledger moves token rows (step 3)
	carriedKnown   atomic.Bool // it has requests that a handover carried (step 4)
	reviewsKnown   atomic.Bool // it keeps how a review ended (step 5)

	recoveryBegun atomic.Pointer[begunAt]

	writer atomic.Pointer[Writer]
	specs  specCache

	reporter sessionLock // while this process reports
	gates    sessionLock // while it writes the gates

	pressure pressure

	// commit is how a transaction is committed; tests cut the connection here.
	commit func(context.Context, pgx.Tx) error
}

// Writer is what this process believes about its right to write. It is set once after registration
// or, without a control plane, from the shard's own ACTIVE row of this group.
type Writer struct {
	FenceVersion int64
	Group        string
}

// Open connects to the shard and refuses a schema that is out of this program's reach, and a
// replicated shard whose commits do not wait for a standby.
func Open(ctx context.Context, cfg Config, deps Deps) (*Store, error) {
	cfg = cfg.withDefaults()
	pc, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, clock: deps.Clock, log: deps.Logger, fenced: deps.OnFenced, doubted: deps.OnDoubt,
		commit: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	}
	pc.AfterConnect = s.greet
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("shard pool: %w", err)
	}
	s.pool = pool
	if s.metrics, err = newMetrics(deps.Registry, pool); err != nil {
		pool.Close()
		return nil, err
	}
	if err := s.check(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// Certificate is the one that this process shows to its shard (sslcert), as its file is now; false:
// it shows none.
func (s *Store) Certificate() (transport.Held, bool) {
	return postgres.Certificate(s.pool.Config().ConnConfig)
}

// Close ends every connection; transactions under way are rolled back.
func (s *Store) Close() {
	s.reporter.drop()
	s.gates.drop()
	s.pool.Close()
}

// SetWriter says which fence version this process writes under from now on.
func (s *Store) SetWriter(w Writer) {
	s.writer.Store(&w)
	s.log.Info("writer set", telemetry.Event, "shard_writer_set", telemetry.FenceVersion, w.FenceVersion, "group", w.Group)
}

// DropWriter takes the right to write away, for a process whose registration was refused.
func (s *Store) DropWriter() { s.writer.Store(nil) }

// Writer is the present writer; false: none, so every write is refused with ErrNoWriter.
func (s *Store) Writer() (Writer, bool) {
	w := s.writer.Load()
	if w == nil {
		return Writer{}, false
	}
	return *w, true
}

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	pc, err := postgres.ParsePool(cfg.DSN, postgres.Policy{Encrypted: cfg.Encrypted})
	if err != nil {
		return nil, fmt.Errorf("shard.dsn_file: %w", err)
	}
	pc.MaxConns = cfg.MaxConns
	pc.ConnConfig.ConnectTimeout = connectTimeout
	pc.ConnConfig.OnNotice = noteUnsynced
	pc.ConnConfig.StatementCacheCapacity = 256
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = "cellquota-" + string(cfg.Cell)
	params["timezone"] = "UTC" // columns are timestamptz; this only keeps logs and psql honest (K66)
	params["lock_timeout"] = millis(cfg.LockTimeout)
	params["statement_timeout"] = millis(cfg.StatementTimeout)
	params["idle_in_transaction_session_timeout"] = millis(cfg.IdleInTransaction)
	params["default_transaction_isolation"] = "read committed"
	// Every statement is a lookup by key. Its plan is made once and must not depend on whether
	// autovacuum has looked at a table yet: a shard fills from empty to a million rows in a minute.
	params["plan_cache_mode"] = "force_generic_plan"
	for _, wholesale := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
		params[wholesale] = "off"
	}
	return pc, nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (s *Store) check(ctx context.Context) error {
	own, err := migrations.Latest()
	if err != nil {
		return err
	}
	var found int64
	if err := s.pool.QueryRow(ctx, sql("schema_step")).Scan(&found); err != nil {
		return fmt.Errorf("read the shard's schema: %w", translate(err))
	}
	if !migrations.Tolerated(own, found) {
		return fmt.Errorf("%w: the shard's schema is at step %d, this program at %d: run cellquotad migrate up", ErrUnsupported, found, own)
	}
	s.keepsRefunds = found >= refundsStep
	if !s.cfg.Replicated {
		return nil
	}
	var names, commit string
	if err := s.pool.QueryRow(ctx, sql("schema_synchronous")).Scan(&names, &commit); err != nil {
		return fmt.Errorf("read the shard's replication: %w", translate(err))
	}
	if names == "" || (commit != "on" && commit != "remote_apply") {
		return fmt.Errorf("%w: a replicated shard must commit to a standby: set synchronous_standby_names and synchronous_commit=on", ErrUnsupported)
	}
	return nil
}

// unsyncedKey marks a connection whose last commit did not wait for its standby.
const unsyncedKey = "cellquota.unsynced"

// noteUnsynced sees the warning "canceling wait for synchronous replication". The server's routine
// is compared, because the text depends on the server's language.
func noteUnsynced(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[unsyncedKey] = true
	}
}
