package cell

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What pgbench runs are the shard's own statements, read from the .sql files, in the
// order and the round trips in which cell/shard sends them, with arguments made in SQL.

// script is a transaction for pgbench.
type script struct {
	t       testing.TB
	queries map[string]string
	used    map[string]bool
	text    strings.Builder
}

func newScript(t testing.TB) *script {
	t.Helper()
	s := &script{t: t, queries: map[string]string{}, used: map[string]bool{}}
	files, err := filepath.Glob("shard/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no statements: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split("\n"+string(text), "\n-- name: ")[1:] {
			name, body, _ := strings.Cut(block, "\n")
			s.queries[strings.TrimSpace(name)] = comment.ReplaceAllString(body, "")
		}
	}
	return s
}

var (
	comment     = regexp.MustCompile(`(?m)^\s*--.*$`)
	placeholder = regexp.MustCompile(`\$\d+`)
)

// line adds a line as it is: a command of pgbench, or a statement.
func (s *script) line(text string) { s.text.WriteString(text + "\n") }

// together adds what travels in one round trip.
func (s *script) together(add func()) {
	s.line(`\startpipeline`)
	add()
	s.line(`\endpipeline`)
}

// run adds a statement of the shard with an expression for each of its parameters.
func (s *script) run(name string, args ...string) {
	s.t.Helper()
	body, ok := s.queries[name]
	if !ok {
		s.t.Fatalf("the shard has no statement %s any more: bring the benchmark up to what cell/shard sends", name)
	}
	most := 0
	out := placeholder.ReplaceAllStringFunc(body, func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		most = max(most, n)
		if n > len(args) {
			return p
		}
		return args[n-1]
	})
	if most != len(args) {
		s.t.Fatalf("%s has %d parameters, not %d: bring the benchmark up to what cell/shard sends", name, most, len(args))
	}
	s.used[name] = true
	s.line(strings.TrimSuffix(strings.TrimSpace(out), ";") + ";")
}

// whole fails when the named files of cell/shard know a statement that is neither in the
// script nor among those that this case does not send.
func (s *script) whole(files []string, unsent ...string) {
	s.t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("shard", file))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, literal := range quotedName.FindAllStringSubmatch(string(text), -1) {
			name := literal[1]
			if _, is := s.queries[name]; is && !s.used[name] && !slices.Contains(unsent, name) {
				s.t.Fatalf("shard/%s knows the statement %s, which the benchmark does not: bring it up to what cell/shard sends", file, name)
			}
		}
	}
}

var quotedName = regexp.MustCompile(`"([a-z_]+)"`)

// begin opens a transaction as inTx does.
func (s *script) begin() {
	s.line("BEGIN;")
	s.together(func() {
		s.run("tx_lock_shared")
		s.run("tx_require_fence", "1", "'blue'", "'SETTLE'")
	})
}

// each is an array of n elements made of an expression over g, from 1 to n.
func each(n int, expression string) string {
	return fmt.Sprintf("ARRAY(SELECT %s FROM generate_series(1, %d) AS g)", expression, n)
}

// Ids as long, and as scattered, as the real ones; :b is drawn anew for each transaction.
const (
	sqlUser        = `'u' || lpad((:b::bigint * 1000 + g)::text, 15, '0')`
	sqlRequest     = `'r' || lpad((:b::bigint * 1000 + g)::text, 15, '0')`
	sqlDigest      = `left(md5(:b::text || '/' || g), 26)`
	sqlReservation = `'cell-1.r' || ` + sqlDigest
	sqlOrder       = `'cell-1.o' || ` + sqlDigest
	sqlNow         = `(SELECT cellquota.now())`
)

func sqlText(s string) string { return "'" + s + "'" }

// ordersScript is the transaction of n orders, as cell/shard's ApplyOrders sends it.
// Each client has a partition of its own; payload is the size of an outbox row's.
func ordersScript(t testing.TB, n, payload int) string {
	s := newScript(t)
	place := []string{each(n, sqlText(campaign)), each(n, sqlText(phone)), each(n, sqlUser), each(n, sqlRequest)}
	topic, partition := "'pgbench'::text", ":client_id::int"
	next := fmt.Sprintf("(SELECT next_offset FROM cellquota.positions WHERE topic = %s AND partition = %s)", topic, partition)
	one := []string{"ARRAY[" + sqlText(campaign) + "]", "ARRAY[" + sqlText(phone) + "]"}
	s.line(`\set b random(1, 1000000000)`)
	s.begin()
	s.together(func() {
		s.run("position_lock", topic, partition)
		s.run("batch_now")
		s.run("batch_lock_stock", one...)
		s.run("batch_now")
		s.run("batch_fence")
		s.run("batch_rules", one...)
		s.run("batch_buckets", one[0])
		s.run("batch_raised", one[0])
		s.run("batch_earlier", place...)
		s.run("tokens_free", one[0], one[1], "ARRAY["+strconv.Itoa(n)+"]")
	})
	s.together(func() {
		s.run("batch_buyers_take", place[0], place[1], place[2], each(n, sqlReservation))
		s.run("batch_buyers_read", place[:3]...)
		s.run("batch_now")
	})
	s.together(func() {
		s.run("position_advance", topic, partition, "''::text", next, next+" + "+strconv.Itoa(n), "0")
		s.run("stock_move", place[0], place[1], each(n, "'RESERVE'"), each(n, sqlReservation), each(n, "-1"), each(n, "1"), each(n, "0"), each(n, "0"),
			"1", "'orders'", "'cell'")
		s.run("batch_orders_insert", each(n, sqlOrder), each(n, sqlReservation), place[3], place[0], place[1], place[2], each(n, "1"), each(n, "'4999.00'"),
			each(n, "'CNY'"), each(n, "clock_timestamp() + interval '15 minutes'"), each(n, "1"), each(n, "1"), each(n, "''"), sqlNow, each(n, "''"))
		s.run("batch_inbox_insert", each(n, sqlReservation), place[3], place[0], place[1], place[2], each(n, "1"), each(n, "'ORDERED'"), each(n, "''"),
			each(n, sqlDigest), each(n, "g"), each(n, "1"), each(n, "1"), each(n, "clock_timestamp()"), topic, partition, "1", sqlNow)
		s.outbox(2*n, payload, `'req/cell-1.r' || left(md5(:b::text || '/' || (g + 1) / 2), 26)`)
	})
	s.line("COMMIT;")
	s.whole([]string{"batch_read.go", "batch_buyers.go", "batch_write.go", "tx.go"},
		"batch_buyers_drop",                     // nobody finds it sold out
		"batch_holds_lock", "batch_holds_count", // no bound on unpaid orders
		"batch_rules_spec", // read once
	)
	return s.text.String()
}

// outbox adds n outbox rows, in turn for the mirror and for others.
func (s *script) outbox(n, payload int, aggregate string) {
	s.run("outbox_insert", each(n, "CASE g % 2 WHEN 1 THEN 'MIRROR' ELSE 'EVENTS' END"), each(n, aggregate), each(n, "'order-created'"),
		each(n, sqlText(campaign)), each(n, sqlText(phone)), each(n, fmt.Sprintf("convert_to(repeat('x', %d), 'UTF8')", payload)), each(n, "''"))
}

// stepScript is the transaction of one payment or one closing, as cell/shard's
// StepOrders sends it, of the next order in bench.todo.
func stepScript(t testing.TB, state string, payload int) string {
	s := newScript(t)
	one := []string{"ARRAY[" + sqlText(campaign) + "]", "ARRAY[" + sqlText(phone) + "]"}
	order, reservation := "ARRAY[:o::text]", "ARRAY[:r::text]"
	s.line("SELECT order_id AS o, reservation_id AS r FROM bench.todo WHERE n = (SELECT nextval('bench.next')) \\gset")
	s.begin()
	s.run("step_lock", order)
	s.together(func() {
		s.run("step_read", order)
		s.run("step_payments", order)
		s.run("step_refunds", order, "ARRAY[]::text[]")
	})
	s.run("batch_lock_stock", one...)
	s.together(func() {
		s.run("step_orders_write", order, "ARRAY[1]", "ARRAY['PENDING_PAYMENT']", "ARRAY["+sqlText(state)+"]", "ARRAY['']", "ARRAY[clock_timestamp()]", "ARRAY[false]", sqlNow)
		if state == "PAID" {
			s.run("step_reservations_write", reservation, "ARRAY['RESERVED']", "ARRAY['CONFIRMED']", "ARRAY['']")
			s.run("step_payments_write", order, "ARRAY['p1']", "ARRAY['4999.00']", "ARRAY['CNY']", "ARRAY['SUCCEEDED']", "ARRAY['']")
			s.run("stock_move", one[0], one[1], "ARRAY['CONFIRM']", reservation, "ARRAY[0]", "ARRAY[-1]", "ARRAY[1]", "ARRAY[0]", "1", "'orders'", "'cell'")
		} else {
			s.run("step_reservations_write", reservation, "ARRAY['RESERVED']", "ARRAY['RELEASED']", "ARRAY['CANCELLED']")
			s.run("stock_move", one[0], one[1], "ARRAY['RELEASE']", reservation, "ARRAY[1]", "ARRAY[-1]", "ARRAY[0]", "ARRAY[1]", "1", "'orders'", "'cell'")
		}
		s.outbox(2, payload, "'req/' || :r::text")
	})
	s.line("COMMIT;")
	s.whole([]string{"steps.go", "steps_write.go", "tx.go"},
		"step_lock_due", "step_lock_cancelled", "step_lease", // the closer's
		"step_refunds_write", "refunds_kick", "restocked_before", // money goes back
		"step_refusals_write", // a callback that does not fit
		"step_payments_write", // a closing without an attempt
	)
	return s.text.String()
}
