package shard_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/testkit"
)

// TestLongestLockWaitIsOfTheCellsSales: a session of the cell's role that waits for a row counts; one that
// waits for its turn at an advisory lock does not, nor does anything that another role waits for.
func TestLongestLockWaitIsOfTheCellsSales(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	const row = "UPDATE cellquota.stock SET version = version"
	for _, c := range []struct {
		role, statement string
		counts          bool
	}{
		{"", row, false},
		{migrate.RoleApp, "SELECT pg_advisory_xact_lock_shared(cellquota.lock_key())", false},
		{migrate.RoleApp, row, true},
	} {
		t.Run(fmt.Sprintf("%s %s", c.role, c.statement), func(t *testing.T) {
			holder, waiter := b.db.Conn(t), b.db.Conn(t)
			if c.role != "" {
				waiter = b.db.ConnAs(t, c.role)
			}
			b.exec(holder, "BEGIN; SELECT pg_advisory_xact_lock(cellquota.lock_key()); SELECT FROM cellquota.stock FOR UPDATE")
			pid, over := waiter.PgConn().PID(), make(chan error, 1)
			go func() { _, err := waiter.Exec(b.ctx, c.statement); over <- err }()
			testkit.Eventually(t, 10*time.Second, func() error {
				if !one[bool](b, "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted AND waitstart < clock_timestamp() - interval '20 ms')", pid) {
					return errors.New("it does not wait yet")
				}
				return nil
			})
			wait, err := b.store.LongestLockWait(b.ctx)
			b.must(err)
			if (wait >= 20*time.Millisecond) != c.counts {
				t.Errorf("the longest wait is %v", wait)
			}
			b.exec(holder, "ROLLBACK")
			b.must(<-over)
		})
	}
}
