package shard_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
)

// growing are the tables that grow with orders; the others have a row per SKU, campaign or cell.
var growing = []string{
	"double-eleven" /* the ledger's partition */, "inbox", "reservations", "orders", "buyers", "outbox", "payments", "refunds", "tokens", "adjustments", "findings",
}

// whole are the statements that read a whole index of few rows, with the reason.
var whole = map[string]string{
	"outbox_lag":         "counts what is pending, by the partial index of pending rows",
	"refunds_backlog":    "counts what is pending, by the partial index of pending rows",
	"refunds_claim":      "reads what is pending, by either of two partial indexes of pending rows",
	"outbox_claim_step2": "of a schema of step 2", "outbox_defer_step2": "of a schema of step 2",
	"buckets_shown":       "looks, after a handover, for effects of one type by the partial index of pending rows",
	"batch_earlier_step3": "of a schema of step 3", "batch_buyers_read_step3": "of a schema of step 3", "snapshot_marks_step3": "of a schema of step 3",
	"finding_counts": "counts what is open, by the partial index of open ones", "finding_frozen": "reads what is open, likewise", "finding_open": "likewise",
	"refunds_adopt": "takes the oldest of a partial index that is empty but after an older program",
}

type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Rows     float64 `json:"Actual Rows"`
	Plans    []node  `json:"Plans"`
}

// faults names what a plan does to growing tables beside looking things up by a key.
func (n node) faults(below bool) []string {
	var out []string
	grows := slices.Contains(growing, n.Relation)
	switch {
	case n.Type == "Seq Scan" && grows:
		out = append(out, "reads all of "+n.Relation)
	case strings.HasPrefix(n.Type, "Index") && grows && n.Cond == "", n.Type == "Bitmap Index Scan" && below && n.Cond == "":
		out = append(out, "reads all of index "+n.Index)
	}
	for _, p := range n.Plans {
		out = append(out, p.faults(grows)...)
	}
	return out
}

// comment is a line that tells of the next statement in the file.
var comment = regexp.MustCompile(`(?m)^--.*$`)

var parameter = regexp.MustCompile(`\$(\d+)`)

// explain is the generic plan of a statement, the one that a connection of the store keeps.
func explain(b *bench, conn *pgx.Conn, name, text string) node {
	b.t.Helper()
	text = comment.ReplaceAllString(text, "")
	last := 0
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		last = max(last, n)
	}
	b.exec(conn, fmt.Sprintf("PREPARE %q AS %s", name, text))
	call := fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %q", name)
	if last > 0 {
		call += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", last), ", ") + ")"
	}
	var raw []byte
	b.must(conn.QueryRow(b.ctx, call, pgx.QueryExecModeSimpleProtocol).Scan(&raw))
	b.exec(conn, fmt.Sprintf("DEALLOCATE %q", name))
	var plan []struct{ Plan node }
	b.must(json.Unmarshal(raw, &plan))
	return plan[0].Plan
}

// populate fills what grows with 20,000 orders of one campaign and 100,000 outbox rows.
func (b *bench) populate() {
	b.t.Helper()
	b.exec(b.admin, "SET session_replication_role = replica")
	for _, fill := range []string{
		`INSERT INTO cellquota.reservations SELECT 'r' || n, 'q' || n, 'double-eleven', 'phone-x', 'u' || n, 1, 'CONFIRMED', '', 1, 1, 'd' || n % 100, now(), now(), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.orders SELECT 'o' || n, 'r' || n, 'q' || n, 'double-eleven', 'phone-x', 'u' || n, 1, 1, 'CNY', 'PAID', '', 1, now(), now(), now(), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.buyers SELECT 'double-eleven', 'phone-x', 'u' || n, 'OWN', 'r' || n, now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.inbox SELECT 'reserve-r' || n, 'r' || n, 'q' || n, 'double-eleven', 'phone-x', 'u' || n, 1, 'ORDERED', '', '', 't', 0, n, 1, 1, 1, now(), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.payments SELECT 'o' || n, 'p', 1, 'CNY', 'SUCCEEDED', NULL, now(), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.refunds (refund_id, order_id, payment_id, amount, currency, cause, state, requested_at, refunded_at)
			SELECT 'f' || n, 'o' || n, 'p', 1, 'CNY', 'REQUESTED', 'REFUNDED', now(), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.tokens SELECT 't' || n, 'double-eleven', 'phone-x', 'SOLD', 'r' || n, 'o' || n FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.findings SELECT 'f' || n, 'OVERDUE', 'double-eleven', 'phone-x', '', '', '', '', 0, 'REPAIRED', '', now() FROM generate_series(1, 20000) n`,
		`INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
			before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
			SELECT 'double-eleven', 'phone-x', 'RESERVE', 'r' || n, 'RESERVE:r' || n || ':1', 0, 0, 0, 0, 0, 0, 0, 0, 0, n, 1, 't', 't', now() FROM generate_series(1, 20000) n`,
	} {
		b.exec(b.admin, fill)
	}
	b.exec(b.admin, "RESET session_replication_role")
	b.fillOutbox(100_000)
}

// planner is a connection that plans as the store's do.
func (b *bench) planner() *pgx.Conn {
	b.t.Helper()
	conn := b.db.ConnAs(b.t, migrate.RoleApp)
	for name, value := range shard.PoolParams(b.t, b.db.As(migrate.RoleApp)) {
		if strings.HasPrefix(name, "enable_") || name == "jit" || name == "plan_cache_mode" {
			b.exec(conn, "SELECT set_config($1, $2, false)", name, value)
		}
	}
	return conn
}

// TestPlans is R-351: every statement of this package finds its rows in growing tables by an index, on an
// empty shard without statistics, on a full one that nobody has looked at yet, and on one with fresh
// statistics. A generic plan is made once per connection, whatever the tables hold by then.
func TestPlans(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	conn := b.planner()
	uses := func(n node, name string) bool {
		found := false
		var walk func(node)
		walk = func(n node) {
			found = found || n.Index == name
			for _, p := range n.Plans {
				walk(p)
			}
		}
		walk(n)
		return found
	}
	look := func(state string) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(shard.Queries())) {
			text := shard.Queries()[name]
			if strings.HasPrefix(text, "FETCH") || whole[name] != "" {
				continue
			}
			if at := strings.Index(text, "CURSOR FOR"); at >= 0 {
				text = text[at+len("CURSOR FOR"):]
			}
			plan := explain(b, conn, name, text)
			for _, fault := range plan.faults(false) {
				t.Errorf("%s: %s %s", state, name, fault)
			}
			// Every process asks each minute, for days of a campaign that settled: a row per campaign, no more.
			if name == "retention_due" && uses(plan, "inbox_by_request") {
				t.Errorf("%s: what is due is told by reading the inbox", state)
			}
			// A claim looks at earlier rows of a row's aggregate, not at all that are pending before it.
			if name == "outbox_claim" && (!uses(plan, "outbox_pending") || !uses(plan, "outbox_of_aggregate")) {
				t.Errorf("%s: claims are not by the partial index of pending rows and that of aggregates: %+v", state, plan)
			}
		}
	}
	look("empty")
	b.exec(b.admin, "ALTER TABLE cellquota.outbox SET (autovacuum_enabled = off)")
	b.populate()
	look("full, no statistics")
	b.exec(b.admin, "ANALYZE")
	look("full, fresh statistics")
	for name := range whole {
		if shard.Queries()[name] == "" {
			t.Errorf("no statement is called %s", name)
		}
	}
}

// most is the table of which one step of a plan gave the most rows.
func (n node) most() (relation string, rows float64) {
	relation, rows = n.Relation, n.Rows
	for _, p := range n.Plans {
		if below, more := p.most(); more > rows {
			relation, rows = below, more
		}
	}
	return relation, rows
}

// TestAPageReadsAPage: a page of a comparison takes as many rows of each table as it gives, however many
// are left behind it. One that sorts what is left makes the comparison quadratic.
func TestAPageReadsAPage(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	b.populate()
	conn := b.planner()
	const limit = 100
	look := func(state string) {
		t.Helper()
		for _, campaign := range []string{"", "double-eleven"} {
			for name, args := range map[string][]any{
				"reconcile_inbox_page":   {"reserve-r1", limit, campaign},
				"reconcile_holds_page":   {"r1", limit, campaign},
				"reconcile_entries_page": {"r1", 0, limit, campaign},
				"reconcile_buyers_page":  {"double-eleven", "phone-x", "u1", limit, campaign},
				"reconcile_chain_page":   {"double-eleven", "phone-x", 0, limit},
			} {
				b.exec(conn, shard.BeginPage())
				var raw []byte
				b.must(conn.QueryRow(b.ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+shard.Queries()[name], append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&raw))
				b.exec(conn, "COMMIT")
				var plan []struct{ Plan node }
				b.must(json.Unmarshal(raw, &plan))
				if rows := plan[0].Plan.Rows; rows != limit {
					t.Errorf("%s, campaign %q: %s gives %v rows", state, campaign, name, rows)
				}
				// The entries' order needs one row of the next reservation.
				if relation, rows := plan[0].Plan.most(); rows > limit+1 {
					t.Errorf("%s, campaign %q: %s takes %v rows of %s for a page of %d\n%s", state, campaign, name, rows, relation, limit, raw)
				}
			}
		}
	}
	look("full, no statistics")
	b.exec(b.admin, "ANALYZE")
	look("full, fresh statistics")
}

// TestPlansSeeAScan: the test above would see one.
func TestPlansSeeAScan(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	conn := b.db.ConnAs(t, migrate.RoleApp)
	for text, fault := range map[string]string{
		"SELECT * FROM cellquota.outbox WHERE event_type = $1": "reads all of outbox",
		"SELECT outbox_id FROM cellquota.outbox ORDER BY 1":    "reads all of index outbox_pkey",
		"SELECT * FROM cellquota.ledger WHERE actor = $1":      "reads all of double-eleven",
	} {
		b.exec(conn, "SET plan_cache_mode = force_generic_plan; SET enable_sort = off")
		if got := explain(b, conn, "x", text).faults(false); len(got) != 1 || got[0] != fault {
			t.Errorf("%s: %v", text, got)
		}
	}
}
