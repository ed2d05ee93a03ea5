package shard

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// Config is what an operator decides about the shard's connections. Zero values take the defaults
// named here.
type Config struct {
	Cell ids.CellID
	// DSN of the role cellquota_app.
	DSN string
	// MaxConns bounds the pool; default 16.
	MaxConns int32
	// LockTimeout bounds one wait for a lock; default 2 s. Longer than the fencer's patience is
	// useless: it ends the backend.
	LockTimeout time.Duration
	// StatementTimeout bounds one statement; default 10 s.
	StatementTimeout time.Duration
	// IdleInTransaction bounds a silent transaction (K81); default 5 s.
	IdleInTransaction time.Duration
	// HeartbeatGap: a heartbeat later than this after the last one means that the shard was not
	// writable in between, and closing waits anew; default 3 s.
	HeartbeatGap time.Duration
	// ReporterIdle is how long the reporter's lock stays with a process that says nothing to the shard,
	// because it is stopped; default 10 s.
	ReporterIdle time.Duration
	// Replicated shards are refused at Open unless commits wait for a standby.
	Replicated bool
	// Encrypted refuses an address without sslmode=verify-full also on loopback; off this machine
	// it is always refused.
	Encrypted bool
}

// Deps are the store's neighbours.
type Deps struct {
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
	// OnFenced, when set, is called once for each writer that the shard refused, after it was
	// dropped. It must not block and must not call the store.
	OnFenced func(Writer)
	// OnDoubt, when set, is called once when the shard shows less than this process saw, or another
	// history; the writer was dropped. It must not block and must not call the store.
	OnDoubt func(Doubt)
}

const (
	defaultMaxConns    = 16
	defaultLock        = 2 * time.Second
	defaultStatement   = 10 * time.Second
	defaultIdle        = 5 * time.Second
	defaultHeartbeat   = 3 * time.Second
	defaultReporter    = 10 * time.Second
	connectTimeout     = 5 * time.Second
	hangUpTimeout      = time.Second
	maxAttempts        = 5 // of one transaction: 40001, 40P01, 55P03
	retryBase          = 5 * time.Millisecond
	unknownCommitTries = 3 // verbs that resolve their own unknown commit
)

func (c Config) withDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.LockTimeout, defaultLock},
		{&c.StatementTimeout, defaultStatement},
		{&c.IdleInTransaction, defaultIdle},
		{&c.HeartbeatGap, defaultHeartbeat},
		{&c.ReporterIdle, defaultReporter},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c
}
