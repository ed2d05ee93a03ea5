package shard_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestTheSchemaRefuses: what no program may write is refused by the database itself, also
// for a superuser: a second row of a SKU, a stock row that is not its sum, an entry under a
// used key, one whose after is not before and delta, and an action that nobody knows.
func TestTheSchemaRefuses(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	b.order("u")
	entry := func(action, key, after string) string {
		return `INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
			before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
			SELECT campaign_id, sku_id, '` + action + `', business_no, '` + key + `', -1, 1, 0, 4, ` + after + `, 1, 2, 0, 0, 99, 1, 't', 't', now() FROM cellquota.ledger WHERE action = 'RESERVE'`
	}
	used := one[string](b, "SELECT idempotency_key FROM cellquota.ledger WHERE action = 'RESERVE'")
	for name, c := range map[string]struct{ statement, code string }{
		"R-346 a second summary row":             {"INSERT INTO cellquota.stock (campaign_id, sku_id, adjustment_version, updated_at) SELECT campaign_id, sku_id, 1, now() FROM cellquota.stock", "23505"},
		"a row that is not its sum":              {"UPDATE cellquota.stock SET available = available + 1", "23514"},
		"less than nothing":                      {"UPDATE cellquota.stock SET available = available - 100, granted = granted - 100", "23514"},
		"R-347 a used idempotency key":           {entry("RESERVE", used, "3"), "23505"},
		"R-348 an action that nobody knows":      {entry("LOCK", "LOCK:x:1", "3"), "23514"},
		"R-349 after is not before and delta":    {entry("RESERVE", "RESERVE:x:1", "4"), "23514"},
		"R-349 an entry that says nothing of it": {"INSERT INTO cellquota.ledger (campaign_id, sku_id, action) SELECT campaign_id, sku_id, action FROM cellquota.ledger", "23502"},
	} {
		var refused *pgconn.PgError
		if _, err := b.admin.Exec(b.ctx, c.statement); !errors.As(err, &refused) || refused.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	b.exec(b.admin, entry("RESERVE", "RESERVE:x:1", "3")) // the statement itself is sound
}
