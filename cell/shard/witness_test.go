package shard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// patience for a server that comes back.
const patience = 20 * time.Second

// past is a shard on a server of its own, reached through a wire that can lead elsewhere.
type past struct {
	*bench
	own    *testkit.OwnPG
	wire   *fault.Proxy
	doubts chan string
}

func newPast(t *testing.T) *past {
	t.Helper()
	own := testkit.OwnPostgres(t, map[string]string{"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"})
	b := &bench{t: t, ctx: testkit.Deadline(t), db: own.Database(t, template)}
	p := &past{bench: b, own: own, wire: fault.New(t, b.db.Addr()), doubts: make(chan string, 4)}
	p.store, p.reg = b.open(shard.Config{DSN: strings.Replace(b.db.As(migrate.RoleApp), b.db.Addr(), p.wire.Addr(), 1), MaxConns: 4}, nil)
	p.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	p.admin = b.db.Conn(t)
	p.sell(20)
	return p
}

// refused expects that the next write reaches no commit, and that the shard is in doubt because of what.
func (p *past) refused(what string) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() error { // until the pool has met the server
		if _, err := p.store.Observe(p.ctx); err != nil && p.store.Doubt().Why == "" {
			return err
		}
		if p.store.Doubt().Why == "" {
			return errors.New("no doubt")
		}
		return nil
	})
	if why := p.store.Doubt().Why; !strings.Contains(why, what) {
		p.t.Errorf("in doubt because %q, want %q", why, what)
	}
	if _, has := p.store.Writer(); has {
		p.t.Error("the writer was kept")
	}
	p.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group}) // who does not ask anybody is stopped all the same
	before := p.entries()
	m := p.message(fmt.Sprintf("late-%d", p.next))
	_, err := p.store.ApplyOrders(p.ctx, shard.Batch{From: shard.Position{Topic: topic, TopicID: topicID, Next: m.Offset}, To: m.Offset + 1, Messages: []shard.Message{m}})
	if !errors.Is(err, shard.ErrShardBehind) {
		p.t.Errorf("a write on a shard that went back: %v", err)
	}
	if after := p.entries(); after != before {
		p.t.Errorf("%d ledger entries were written", after-before)
	}
}

// entries counts the ledger past the store.
func (p *past) entries() int64 {
	p.t.Helper()
	p.admin = p.db.Conn(p.t)
	return one[int64](p.bench, "SELECT count(*) FROM cellquota.ledger")
}

func TestK01BackupWithTheSameHistoryIsInDoubtBeforeOneWrite(t *testing.T) {
	p := newPast(t)
	p.order("before")
	backup := p.own.Backup(t)
	p.order("after") // remembered by the commit alone: nobody looked since
	backup.Restore(t)
	p.refused("stock version")
}

func TestPromotedStandbyWithoutTheTailIsInDoubtBeforeOneWrite(t *testing.T) {
	p := newPast(t)
	standby := p.own.AsyncStandby(t)
	p.order("before")
	standby.Detach(t)
	p.order("after")
	standby.TakeOver(t, p.own)
	p.wire.Lead(standby.Addr())
	p.db = standby.Existing(p.db.Name)
	p.refused("stock version")
}

// A standby that has the whole tail lacks nothing, but it is another history: the control plane decides.
func TestPromotedStandbyWithTheTailIsAskedAbout(t *testing.T) {
	p := newPast(t)
	standby := p.own.AsyncStandby(t)
	p.order("before")
	last := one[string](p.bench, "SELECT pg_current_wal_lsn()::text")
	replica := standby.Existing(p.db.Name)
	testkit.Eventually(t, patience, func() error {
		var there bool
		err := replica.Conn(t).QueryRow(p.ctx, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", last).Scan(&there)
		if err == nil && !there {
			err = errors.New("the standby lags")
		}
		return err
	})
	standby.TakeOver(t, p.own)
	p.wire.Lead(standby.Addr())
	p.db = replica
	p.refused("another history")

	now, err := p.store.Observe(p.ctx)
	if err != nil || !p.store.Trust(now) {
		t.Fatal("not trusted", err)
	}
	// The control plane found nothing missing.
	p.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	p.admin = p.db.Conn(t)
	p.next = one[int64](p.bench, "SELECT next_offset FROM cellquota.positions")
	p.order("goes on")
	p.invariants()
}

func TestEmptyDirectoryIsInDoubtBeforeOneWrite(t *testing.T) {
	p := newPast(t)
	p.order("before")
	p.own.Empty(t)
	p.own.Create(t, p.db.Name, template) // a fresh schema, provisioned again: fence version 1, ACTIVE
	p.refused("stock version")
}

// What this process saw goes with what may be deleted: a settled campaign's rows are not missed.
func TestRowsOfASettledCampaignAreNotMissed(t *testing.T) {
	p := newPast(t)
	p.order("buyer")
	if _, err := p.admin.Exec(p.ctx, "UPDATE cellquota.campaigns SET state = 'SETTLED'"); err != nil {
		t.Fatal(err)
	}
	p.wire.Reset()
	testkit.Eventually(t, patience, func() error {
		_, err := p.store.Observe(p.ctx)
		return err
	})
	if why := p.store.Doubt().Why; why != "" {
		t.Errorf("in doubt: %s", why)
	}
}

// Commits that others make while this process reads are no evidence against the shard.
func TestConnectionsThatComeDuringASaleLeaveNoDoubt(t *testing.T) {
	p := newPast(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 40 {
			if _, err := p.store.Observe(p.ctx); err != nil && !errors.Is(err, shard.ErrUnavailable) {
				t.Error(err)
			}
		}
	}()
	for i := range 15 {
		p.order(fmt.Sprintf("user-%d", i))
	}
	<-done
	if why := p.store.Doubt().Why; why != "" {
		t.Errorf("in doubt: %s", why)
	}
}
