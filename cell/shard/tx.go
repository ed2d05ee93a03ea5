package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// need is what a verb asks of the fence's state.
type need string

const (
	needActive need = "ACTIVE" // sells
	needPay    need = "PAY"    // payments and refunds: SETTLE, but not while the shard is being recovered
	needSettle need = "SETTLE" // payments, closings, effects, returns, rejections
)

// tx is what a verb gets: the open transaction and the writer it runs under. It must not be kept.
type tx struct {
	pgx.Tx
	writer Writer
	// marks are the versions of the stock rows that this transaction locked, as it leaves them.
	marks map[skuKey]int64
}

// send runs a batch and hands its results to read. Results that read leaves are still checked. The
// batch's own error wins over read's: what read made of a connection that had ended (rows missing,
// say) is not what happened.
func (t tx) send(ctx context.Context, b *pgx.Batch, read func(pgx.BatchResults) error) error {
	results := t.SendBatch(ctx, b)
	err := read(results)
	if failed := results.Close(); failed != nil {
		return failed
	}
	return err
}

// inTx is the only way to write. fn must be pure over its inputs and tx: it runs again after a
// deadlock, a lock time-out or a serialisation failure.
func (s *Store) inTx(ctx context.Context, verb string, n need, fn func(context.Context, tx) error) error {
	w, ok := s.Writer()
	if !ok {
		return ErrNoWriter
	}
	started := s.clock.Now()
	var err error
	for attempt := 1; ; attempt++ {
		err = s.attempt(ctx, w, n, fn)
		s.metrics.attempt(verb, err)
		if verb == "apply_orders" || verb == "apply_direct" {
			s.pressure.attempted(s.clock.Now(), err)
		}
		if !retryable(err) || errors.Is(err, ErrUnknownCommit) || attempt == maxAttempts {
			break
		}
		if s.clock.Sleep(ctx, backoff(attempt)) != nil {
			break
		}
	}
	s.metrics.duration(verb, s.clock.Now().Sub(started))
	err = translate(err)
	if errors.Is(err, ErrFenced) {
		s.lostWriter(w)
	}
	return err
}

// backoff is the pause before the next attempt: doubling, with jitter, so that two transactions
// that deadlocked do not meet again.
func backoff(attempt int) time.Duration {
	d := retryBase << (attempt - 1)
	return d/2 + rand.N(d)
}

func (s *Store) lostWriter(w Writer) {
	held := s.writer.Load()
	if held == nil || *held != w || !s.writer.CompareAndSwap(held, nil) {
		return // somebody registered anew meanwhile, or another transaction saw it first
	}
	s.log.Warn("writer refused by the shard", telemetry.Event, "shard_writer_fenced", telemetry.FenceVersion, w.FenceVersion, "group", w.Group)
	if s.fenced != nil {
		s.fenced(w)
	}
}

func (s *Store) attempt(ctx context.Context, w Writer, n need, fn func(context.Context, tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer conn.Release() // a connection that is not idle is closed by the pool
	if err := s.trusted(ctx, conn.Conn()); err != nil {
		return err
	}
	begun, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	t := tx{Tx: begun, writer: w, marks: map[skuKey]int64{}}
	if err := t.enter(ctx, n); err != nil {
		return rolledBack(ctx, begun, err)
	}
	if err := fn(ctx, t); err != nil {
		return rolledBack(ctx, begun, err)
	}
	if err := s.commitOrUnknown(ctx, conn.Conn().PgConn(), begun); err != nil {
		return err
	}
	s.memory.committed(t.marks)
	return nil
}

// enter takes the shared lock and then, in the next statement, requires the fence. Both travel
// together; the server runs them one after the other, each with its own snapshot.
func (t tx) enter(ctx context.Context, n need) error {
	b := &pgx.Batch{}
	b.Queue(sql("tx_lock_shared"))
	b.Queue(sql("tx_require_fence"), t.writer.FenceVersion, t.writer.Group, string(n))
	return t.SendBatch(ctx, b).Close()
}

// rolledBack ends the transaction even when ctx has ended, so that no lock outlives the verb (K81).
func rolledBack(ctx context.Context, t pgx.Tx, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	if err := t.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		hangUp(ctx, t.Conn().PgConn()) // the server rolls back what it can no longer hear
	}
	return cause
}

// commitOrUnknown commits. Only an answer of the server that ends the transaction is a failure;
// everything else may have happened. ctx's end does not cut a commit short: its answer is worth
// waiting for.
func (s *Store) commitOrUnknown(ctx context.Context, conn *pgconn.PgConn, t pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StatementTimeout)
	defer cancel()
	delete(conn.CustomData(), unsyncedKey)
	err := s.commit(ctx, t)
	unsynced := conn.CustomData()[unsyncedKey] == true
	switch {
	case err == nil && !unsynced:
		return nil
	case err == nil:
		err = errors.New("the commit did not wait for its standby")
	case definite(err):
		return err
	}
	hangUp(ctx, conn) // whatever it still says belongs to nobody
	return fmt.Errorf("%w: %w", ErrUnknownCommit, err)
}

// hangUp closes a connection so that the pool knows it: one closed underneath would be handed to the
// next transaction.
func hangUp(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// definite: the server itself said that this commit failed and the session lives.
func definite(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.SeverityUnlocalized != "ERROR" {
		return false
	}
	return strings.HasPrefix(pg.Code, "40") || strings.HasPrefix(pg.Code, "23")
}
