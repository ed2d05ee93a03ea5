//go:build system || chaos

package system

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
)

const booksPrefix = "/cellquota/books/"

// checker reads etcd and every shard each 100 ms while faults run, with statements of its own.
type checker struct {
	t      *testing.T
	etcd   *clientv3.Client
	shards map[string]*pgx.Conn
	dsn    map[string]string
	users  map[string]string // campaign, SKU and user → order
	ledger map[string]int64  // cell → newest entry seen

	mu      sync.Mutex
	samples int
	faults  []string
}

// check starts a checker; the function it gives stops it and reports.
func (p *local) check() (stop func()) {
	p.t.Helper()
	e := p.endpoints()
	client, err := clientv3.New(clientv3.Config{Endpoints: e.Etcd.Endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		p.t.Fatal(err)
	}
	c := &checker{t: p.t, etcd: client, shards: map[string]*pgx.Conn{}, dsn: map[string]string{}, users: map[string]string{}, ledger: map[string]int64{}}
	for _, cell := range e.Cells {
		c.dsn[cell.CellID] = cell.PostgresSuperuser
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := clock.System().NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C():
				c.sample(ctx)
			}
		}
	}()
	return func() {
		p.t.Helper()
		cancel()
		<-done
		c.walkHistory(context.WithoutCancel(ctx))
		_ = client.Close()
		p.t.Logf("checker: %d samples, %d orders", c.samples, len(c.users))
		if c.samples < 10 {
			p.t.Errorf("the checker took only %d samples", c.samples)
		}
		for _, f := range c.faults {
			p.t.Errorf("checker: %s", f)
		}
	}
}

func (c *checker) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < 20 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

func (c *checker) books(ctx context.Context) (map[string]core.Book, bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	resp, err := c.etcd.Get(ctx, booksPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, false // etcd may be the one that is down
	}
	out := map[string]core.Book{}
	for _, kv := range resp.Kvs {
		b, err := store.DecodeBook(kv.Value)
		if err != nil {
			c.fault("I1: %s cannot be read: %v", kv.Key, err)
			continue
		}
		if err := b.Check(); err != nil {
			c.fault("I1: %v", err)
		}
		out[b.Key.String()] = b
	}
	return out, true
}

// sample judges I1 to I5 and I8 at one moment.
func (c *checker) sample(ctx context.Context) {
	before, ok := c.books(ctx)
	if !ok {
		return
	}
	totals := map[string]stock{}
	held := map[string]int64{} // "CELL KEY" → granted
	for cell := range c.dsn {
		c.readShard(ctx, cell, totals, held)
	}
	after, ok := c.books(ctx)
	if !ok || ctx.Err() != nil {
		return
	}
	c.samples++
	for key, b := range before {
		if after[key].Version != b.Version {
			continue // it moved; the next sample is 100 ms away
		}
		total := totals[key]
		if total.reserved+total.confirmed > b.SaleLimit.Int64() {
			c.fault("I3: %s: limit %s, shards %s", key, b.SaleLimit, total)
		}
		if b.Reserve.Int64()+total.granted > b.SaleLimit.Int64() {
			c.fault("I3: %s: limit %s, reserve %s, shards %s", key, b.SaleLimit, b.Reserve, total)
		}
		for _, a := range b.Allocations {
			if granted := held[string(a.Cell)+" "+key]; granted > a.Granted.Int64() {
				c.fault("I2: cell %s holds %d of %s, the book allocates %s", a.Cell, granted, key, a.Granted)
			}
		}
	}
}

// readShard adds one shard's rows to the totals; false when it did not answer.
func (c *checker) readShard(ctx context.Context, cell string, totals map[string]stock, held map[string]int64) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn := c.shards[cell]
	if conn == nil || conn.IsClosed() {
		fresh, err := pgx.Connect(ctx, c.dsn[cell])
		if err != nil {
			return false
		}
		conn, c.shards[cell] = fresh, fresh
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	rows, err := tx.Query(ctx, `SELECT campaign_id || '/' || sku_id, granted, available, reserved, confirmed FROM cellquota.v_stock`)
	if err != nil {
		return false
	}
	at := map[string]stock{}
	var key string
	var s stock
	if _, err := pgx.ForEachRow(rows, []any{&key, &s.granted, &s.available, &s.reserved, &s.confirmed}, func() error {
		at[key] = s
		return nil
	}); err != nil {
		return false
	}
	for key, s := range at {
		if s.granted != s.available+s.reserved+s.confirmed || min(s.available, s.reserved, s.confirmed) < 0 {
			c.fault("I2: cell %s, %s: %s", cell, key, s)
		}
		held[cell+" "+key] = s.granted
		t := totals[key]
		totals[key] = stock{t.granted + s.granted, t.available + s.available, t.reserved + s.reserved, t.confirmed + s.confirmed}
	}
	return c.growth(ctx, tx, cell)
}

// growth judges what the shard's ledger grew by: chained entries (I5), one order per user over all
// shards (I4), no entry of an older fence version after a newer one was installed (I8).
func (c *checker) growth(ctx context.Context, tx pgx.Tx, cell string) bool {
	rows, err := tx.Query(ctx, `
		SELECT l.entry_id, l.campaign_id || '/' || l.sku_id, l.action, coalesce(o.user_id, ''), coalesce(o.order_id, ''),
		  EXISTS (SELECT FROM cellquota.v_fence_history h JOIN cellquota.v_ledger_writers w ON w.entry_id = l.entry_id
		          WHERE w.created_at > h.at AND w.fence_version < h.fence_version) AS late,
		  l.before_available = coalesce(p.after_available, 0) AND l.before_reserved = coalesce(p.after_reserved, 0) AND l.before_confirmed = coalesce(p.after_confirmed, 0) AS chained
		FROM cellquota.v_ledger l
		LEFT JOIN LATERAL (SELECT after_available, after_reserved, after_confirmed FROM cellquota.v_ledger b
		  WHERE b.campaign_id = l.campaign_id AND b.sku_id = l.sku_id AND b.entry_id < l.entry_id ORDER BY b.entry_id DESC LIMIT 1) p ON true
		LEFT JOIN cellquota.v_orders o ON l.action = 'RESERVE' AND o.reservation_id = l.business_no
		WHERE l.entry_id > $1 ORDER BY l.entry_id LIMIT 5000`, c.ledger[cell])
	if err != nil {
		return false
	}
	var entry int64
	var key, action, user, order string
	var late, chained bool
	newest := c.ledger[cell]
	_, err = pgx.ForEachRow(rows, []any{&entry, &key, &action, &user, &order, &late, &chained}, func() error {
		newest = entry
		if late {
			c.fault("I8: cell %s, entry %d of %s", cell, entry, key)
		}
		if !chained {
			c.fault("I5: cell %s, entry %d of %s does not start where the one before ended", cell, entry, key)
		}
		if action == "RESERVE" {
			who := key + "/" + user
			if have, ok := c.users[who]; ok && have != order {
				c.fault("I4: %s has orders %s and %s", who, have, order)
			}
			c.users[who] = order
		}
		return nil
	})
	if err != nil {
		return false
	}
	// One SKU per test: entries commit in the order of their ids, so none is passed over.
	c.ledger[cell] = newest
	return true
}

// walkHistory checks I1 at every revision that etcd still has (all of them, unless a test compacts).
func (c *checker) walkHistory(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	head, err := c.etcd.Get(ctx, booksPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		c.fault("I1: etcd's head cannot be read: %v", err)
		return
	}
	newest := int64(0)
	for _, kv := range head.Kvs {
		newest = max(newest, kv.ModRevision)
	}
	seen, from := 0, c.oldest(ctx)
	for resp := range c.etcd.Watch(ctx, booksPrefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			c.fault("I1: history: %v", err)
			return
		}
		for _, ev := range resp.Events {
			if ev.Type != clientv3.EventTypePut {
				continue
			}
			seen++
			b, err := store.DecodeBook(ev.Kv.Value)
			if err == nil {
				err = b.Check()
			}
			if err != nil {
				c.fault("I1 at revision %d: %v", ev.Kv.ModRevision, err)
			}
			if ev.Kv.ModRevision >= newest {
				c.t.Logf("history from revision %d: %d versions of %d books", from, seen, len(head.Kvs))
				return
			}
		}
	}
	c.fault("I1: the history ended before revision %d", newest)
}

// oldest is the first revision that etcd still has.
func (c *checker) oldest(ctx context.Context) int64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := <-c.etcd.Watch(ctx, booksPrefix, clientv3.WithPrefix(), clientv3.WithRev(1)) // refused when it is compacted
	return max(1, first.CompactRevision)
}

// sold sums a SKU over all shards.
func (p *local) sold(key string) stock {
	p.t.Helper()
	var total stock
	campaign, sku, _ := strings.Cut(key, "/")
	for _, cell := range p.endpoints().Cells {
		conn, err := pgx.Connect(p.t.Context(), cell.Postgres)
		if err != nil {
			p.t.Fatal(err)
		}
		var s stock
		err = conn.QueryRow(p.t.Context(), `SELECT granted, available, reserved, confirmed FROM cellquota.v_stock WHERE campaign_id = $1 AND sku_id = $2`, campaign, sku).
			Scan(&s.granted, &s.available, &s.reserved, &s.confirmed)
		if err != nil {
			p.t.Fatalf("cell %s: %v", cell.CellID, err)
		}
		_ = conn.Close(p.t.Context())
		total = stock{total.granted + s.granted, total.available + s.available, total.reserved + s.reserved, total.confirmed + s.confirmed}
	}
	return total
}
