package shard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
)

// fillOutbox adds rows that left, an hour ago and longer, beside what is there.
func (b *bench) fillOutbox(rows int) {
	b.t.Helper()
	b.exec(b.admin, `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, state, attempts, claimed_by, created_at, published_at)
		SELECT CASE n % 2 WHEN 0 THEN 'MIRROR' ELSE 'EVENTS' END, 'req/old-' || n, 'settle', $1, $2, '\x01', 'PUBLISHED', 1, 'x',
			cellquota.now() - interval '2 hours', cellquota.now() - interval '1 hour' FROM generate_series(1, $3::int) n`, string(campaign), string(phone), rows)
}

// TestPruneOutbox: of 100,000 rows that left, those that left long enough ago go, page by page; pending
// and parked ones stay, and so do young ones. Claims and lookups go on meanwhile.
func TestPruneOutbox(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	parked := b.claim("x", 1, time.Minute)
	b.must(b.store.ParkOutbox(b.ctx, "x", parked[0].ID, errors.New("test")))
	b.exec(b.admin, "UPDATE cellquota.outbox SET created_at = cellquota.now() - interval '3 hours'")
	b.fillOutbox(100_000)
	order := b.order("u") // pending and young
	after, pages, deleted := int64(0), 0, int64(0)
	for {
		p, err := b.store.PruneOutbox(b.ctx, after, 5000, 30*time.Minute)
		b.must(err)
		pages, deleted = pages+1, deleted+p.Deleted
		if after = p.Next; after == 0 {
			break
		}
	}
	if deleted != 100_000 || pages != 21 {
		t.Errorf("%d rows deleted in %d pages", deleted, pages)
	}
	if left := one[string](b, "SELECT string_agg(state, ' ' ORDER BY outbox_id) FROM cellquota.outbox"); left != "PARKED PENDING PENDING" {
		t.Errorf("left: %s", left)
	}
	if found, err := b.store.EffectsOf(b.ctx, order.Reservation()); err != nil || len(found.Payloads) != 1 {
		t.Errorf("effects of the order: %+v, %v", found, err)
	}
	rows := b.claim("a", 10, time.Minute)
	if len(rows) != 1 {
		t.Errorf("claimed %d rows", len(rows))
	}
	b.must(b.store.MarkPublished(b.ctx, "a", rowIDs(rows)))
	if p, err := b.store.PruneOutbox(b.ctx, 0, 10, 30*time.Minute); err != nil || p.Deleted != 0 || p.Next != 0 {
		t.Errorf("what left just now: %+v, %v", p, err)
	}
	for _, limit := range []int{0, 5001} {
		if _, err := b.store.PruneOutbox(b.ctx, 0, limit, time.Hour); !errors.Is(err, shard.ErrInvalid) {
			t.Errorf("a page of %d: %v", limit, err)
		}
	}
}
