package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/postgres"
)

// FenceState is the state column of the fence row.
type FenceState string

// The states of a fence (seams, Words).
const (
	Active     FenceState = "ACTIVE"
	SettleOnly FenceState = "SETTLE_ONLY"
	Fenced     FenceState = "FENCED"
)

// Fence is the fence row with the term beside it.
type Fence struct {
	Cell          ids.CellID
	Version       int64
	MessagesFrom  int64 // admissions of lower versions without a row read as CELL_FENCED
	State         FenceState
	InstanceGroup string
	StateSince    time.Time
	TermCount     int64
	TermID        string
}

// ReadFence reads the fence row. ErrNoFence: provision the cell.
func (s *Store) ReadFence(ctx context.Context) (Fence, error) {
	var f Fence
	err := s.pool.QueryRow(ctx, sql("fence_read")).Scan(&f.Cell, &f.Version, &f.MessagesFrom, &f.State,
		&f.InstanceGroup, &f.StateSince, &f.TermCount, &f.TermID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Fence{}, ErrNoFence
	}
	return f, translate(err)
}

// RaiseTerm records a control-plane term: it waits for adjustments in flight under older terms and
// returns when it is committed, so that facts read afterwards hold every adjustment that an older
// leader can still have applied. A lower term, or another id of the same count, is ErrTermLower. It
// needs no writer: a process says hello before it may write.
func (s *Store) RaiseTerm(ctx context.Context, count int64, id string) error {
	_, err := s.pool.Exec(ctx, sql("term_raise"), count, id)
	return translate(err)
}

// Identity is "SYSTEM_IDENTIFIER/TIMELINE" of this PostgreSQL: another one is another history.
func (s *Store) Identity(ctx context.Context) (string, error) {
	var id string
	err := s.pool.QueryRow(ctx, sql("shard_identity")).Scan(&id)
	return id, translate(err)
}

// Heartbeat records that the shard can be written, about once a second by every process. After a
// gap longer than Config.HeartbeatGap closing waits anew for payment.grace: callbacks that could
// not be taken meanwhile come first.
func (s *Store) Heartbeat(ctx context.Context) error {
	return s.inTx(ctx, "heartbeat", needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql("heartbeat_beat"), s.cfg.HeartbeatGap.Seconds())
		return err
	})
}

// TryReporterLock makes this process the one that reports for its cell, or finds that another is.
// The lock lives as long as its own connection: held is checked by using it, so a process that lost
// its shard is told so, and one that is stopped loses the lock after Config.ReporterIdle. Call it
// before every report.
func (s *Store) TryReporterLock(ctx context.Context) (held bool, err error) {
	return s.tryLock(ctx, &s.reporter, "reporter_try")
}

// TryGateLock makes this process the one that writes the gates of its cell, as TryReporterLock does for
// reports. Call it about once a second.
func (s *Store) TryGateLock(ctx context.Context) (held bool, err error) {
	return s.tryLock(ctx, &s.gates, "gates_try")
}

// sessionLock is an advisory lock that lives as long as a connection of its own.
type sessionLock struct {
	sync.Mutex
	conn *pgx.Conn // asks for the lock, and holds it when it got it; nil: not asked yet, or hung up
	held bool
}

func (s *Store) tryLock(ctx context.Context, l *sessionLock, query string) (held bool, err error) {
	l.Lock()
	defer l.Unlock()
	if l.conn != nil {
		if held, err = l.again(ctx, query); err == nil {
			return held, nil
		}
		l.hangUp()
	}
	cfg := s.pool.Config().ConnConfig // a copy
	postgres.Renew(cfg)
	cfg.RuntimeParams["idle_session_timeout"] = millis(s.cfg.ReporterIdle)
	if l.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		l.conn = nil
		return false, translate(err)
	}
	if held, err = l.again(ctx, query); err != nil {
		l.hangUp()
	}
	return held, translate(err)
}

// again asks on the connection that is there: whether it lives, if it has the lock; for the lock, if not.
func (l *sessionLock) again(ctx context.Context, query string) (held bool, err error) {
	if l.held {
		return true, l.conn.Ping(ctx)
	}
	err = l.conn.QueryRow(ctx, sql(query)).Scan(&l.held)
	return l.held, err
}

// hangUp closes the connection at once; the lock goes with its session.
func (l *sessionLock) hangUp() {
	if l.conn != nil {
		_ = l.conn.PgConn().Conn().Close()
	}
	l.conn, l.held = nil, false
}

// drop closes the lock's connection at once.
func (l *sessionLock) drop() {
	l.Lock()
	defer l.Unlock()
	l.hangUp()
}

// giveUp lets another process have the lock, as far as the shard can be told within the time-out.
func (l *sessionLock) giveUp() {
	l.Lock()
	defer l.Unlock()
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangUpTimeout)
	defer cancel()
	_ = l.conn.Close(ctx) // the lock goes with its session
	l.conn, l.held = nil, false
}

// GiveUpReporterLock lets another process report: this one has nobody to report to.
func (s *Store) GiveUpReporterLock() { s.reporter.giveUp() }

// GiveUpGateLock lets another process write the gates: this one cannot reach every mirror.
func (s *Store) GiveUpGateLock() { s.gates.giveUp() }
