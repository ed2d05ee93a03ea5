package cell

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

//go:embed testdata/acceptance.sql
var acceptanceSQL string

// fourChecks are the statements of testdata/acceptance.sql, in its order.
func fourChecks(t testing.TB) []string {
	t.Helper()
	var out []string
	for part := range strings.SplitSeq(acceptanceSQL, ";\n") {
		if strings.TrimSpace(part) != "" {
			out = append(out, part)
		}
	}
	if len(out) != 4 {
		t.Fatalf("%d statements, want 4", len(out))
	}
	return out
}

// rowsOf counts the rows of a statement, and shows one.
func (w *world) rowsOf(conn *pgx.Conn, sql string) (n int, first string) {
	w.t.Helper()
	rows, err := conn.Query(w.ctx, sql)
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		w.must(err)
		if n++; n == 1 {
			first = fmt.Sprint(values)
		}
	}
	w.must(rows.Err())
	return n, first
}

// accepted is R-294: the four checks find nothing, as the reader sees the shard; beside them the sums that
// every storm must leave (I2, I5), with statements that the product does not share.
func (w *world) accepted() {
	w.t.Helper()
	reader := w.db.ConnAs(w.t, migrate.RoleReader)
	for i, sql := range fourChecks(w.t) {
		if n, first := w.rowsOf(reader, sql); n != 0 {
			w.t.Errorf("SQL check %d has %d rows, the first: %s", i+1, n, first)
		}
	}
	for name, sql := range map[string]string{
		"a stock row that does not add up": "SELECT sku_id FROM cellquota.v_stock WHERE granted <> available + reserved + confirmed OR least(available, reserved, confirmed) < 0",
		"a ledger that is not its stock row": `SELECT s.sku_id FROM cellquota.v_stock s LEFT JOIN cellquota.v_ledger l USING (campaign_id, sku_id) GROUP BY s.campaign_id, s.sku_id, s.available, s.reserved, s.confirmed
			HAVING (s.available, s.reserved, s.confirmed) IS DISTINCT FROM (coalesce(sum(l.delta_available), 0), coalesce(sum(l.delta_reserved), 0), coalesce(sum(l.delta_confirmed), 0))`,
		"units held that are not those of orders": `SELECT s.sku_id FROM cellquota.v_stock s LEFT JOIN cellquota.v_orders o USING (campaign_id, sku_id) GROUP BY s.campaign_id, s.sku_id, s.reserved, s.confirmed
			HAVING s.reserved <> coalesce(sum(o.quantity) FILTER (WHERE o.state = 'PENDING_PAYMENT'), 0) OR s.confirmed <> coalesce(sum(o.quantity) FILTER (WHERE o.state = 'PAID'), 0)
			- (SELECT coalesce(sum(delta_available), 0) FROM cellquota.v_ledger l WHERE l.action = 'RESTOCK' AND l.campaign_id = s.campaign_id AND l.sku_id = s.sku_id)`,
	} {
		if n, first := w.rowsOf(reader, sql); n != 0 {
			w.t.Errorf("%s: %s", name, first)
		}
	}
}

// settled waits until nothing is on its way: no admission, no message, no effect; the mirror then has what
// the shard has (I9).
func (p *process) settled() {
	p.w.t.Helper()
	testkit.Eventually(p.w.t, 2*patience, func() error {
		if n := p.w.count("SELECT count(*) FROM cellquota.v_outbox WHERE state = 'PENDING'"); n != 0 {
			return fmt.Errorf("%d rows wait in the outbox", n)
		}
		available := p.w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone)
		m, err := p.client.Facts.GetMirror(p.w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
		switch {
		case err != nil:
			return err
		case m.GetOutstanding() != 0 || m.GetStreamLength() != 0:
			return errors.New("admissions are on their way")
		case m.GetStock() != available:
			return fmt.Errorf("mirror %d, shard %d", m.GetStock(), available)
		}
		return nil
	})
}

// wide lets a crowd of ten thousand through the gate at once: what these tests attack lies behind it. The
// gate's own test is TestC16BacklogDrainsWithinItsBudget.
var wide = []string{"--gate-min-rate=20000"}

// sellTwo is sell with two processes, started with further flags, both of which serve when it returns.
func (w *world) sellTwo(units int32, flags []string, change ...func(*pb.CampaignRules)) (p, q *process) {
	w.t.Helper()
	p, q = w.start(flags...).ready(), w.start(flags...).ready()
	w.install(1, change...)
	w.grant(1, units)
	for _, one := range []*process{p, q} {
		testkit.Eventually(w.t, patience, func() error {
			g, err := one.client.Facts.GetGate(w.ctx, &pb.GetGateRequest{})
			if err == nil && !slices.ContainsFunc(g.GetGates(), func(s *pb.SkuGate) bool { return s.GetSkuId() == phone }) {
				err = errors.New("the rules have not come")
			}
			if _, ok := one.parts.mirror.Expected(admission.Scope{Campaign: campaign, SKU: phone}); err == nil && !ok {
				err = errors.New("it has not found the mirror that another one built")
			}
			return err
		})
		one.stocked(int64(units))
	}
	return p, q
}

// TestC01StockOfTenThousand is C-01 and C-02: 12,000 users, a caller each, want 10,000 units through
// two processes at once, and every fifth repeats its request. At no sample is more sold than there is, and in
// the end exactly the stock is.
func TestC01StockOfTenThousand(t *testing.T) {
	const units, users = tenThousand, 12_000
	w := newWorld(t)
	p, q := w.sellTwo(units, wide)
	asks := w.crowdOf(users, func(i int) (string, string) { return fmt.Sprint("user-", i), "r1" })
	samples := w.neverMoreThan(units)
	answers := w.storm(lines(t, edgeStreams, p, q), asks, func(i int) int {
		if i%5 == 0 {
			return 1
		}
		return 0
	})
	p.settled()
	samples()
	got := told(answers)
	orders := w.count("SELECT count(*) FROM cellquota.v_orders")
	t.Logf("%d orders of %d users; told %v", orders, users, got)
	if orders != units || got[pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED]+got[pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED] != units || got[pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT] != users-units {
		t.Errorf("%d orders of %d units; told %v", orders, units, got)
	}
	w.accepted()
}

// neverMoreThan samples the shard until it is called off: at no moment is more reserved and confirmed than
// there is (I3).
func (w *world) neverMoreThan(units int64) (done func()) {
	w.t.Helper()
	reader := w.db.ConnAs(w.t, migrate.RoleReader)
	end, ended := make(chan struct{}), make(chan struct{})
	samples := 0
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			var sold int64
			if err := reader.QueryRow(w.ctx, "SELECT coalesce(sum(reserved + confirmed), 0) FROM cellquota.v_stock WHERE sku_id = $1", phone).Scan(&sold); err != nil || sold > units {
				w.t.Errorf("sample %d: %d sold of %d, %v", samples, sold, units, err)
				return
			}
			samples++
		}
	}()
	return func() {
		w.t.Helper()
		close(end)
		<-ended
		if samples == 0 {
			w.t.Error("nothing was sampled")
		}
	}
}

// TestC02TenThousandRequestsOfOneUser is C-02 and R-269: one user calls 10,000 times at once, each
// time under another request_id. One is accepted, all others are told which one.
func TestC02TenThousandRequestsOfOneUser(t *testing.T) {
	w := newWorld(t)
	p := w.sell(tenThousand, wide...)
	asks := w.crowdOf(tenThousand, func(i int) (string, string) { return "greedy", fmt.Sprint("r", i) })
	answers := w.storm(lines(t, edgeStreams, p), asks, never)
	var winner string
	for i, a := range answers {
		if a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED {
			winner = asks[i].GetAdmit().GetRequestId()
		}
	}
	for i, a := range answers {
		if a.GetOutcome() != pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED && (a.GetOutcome() != pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED || a.GetRequest().GetRequestId() != winner) {
			t.Fatalf("caller %d is told %v; the winner is %s", i, a, winner)
		}
	}
	if n := told(answers)[pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED]; n != 1 {
		t.Fatalf("%d of one user's requests were accepted", n)
	}
	p.reaches("greedy", winner, "", pending)
	p.settled()
	p.balanced(tenThousand, 1)
	w.accepted()
}

// TestC03OneRequestRetried10000Times is C-03, K62 and R-270: one request_id, 10,000 callers at once over two
// processes, and a hundred repeats more once it is ordered: one reservation, which everybody is told.
func TestC03OneRequestRetried10000Times(t *testing.T) {
	w := newWorld(t)
	p, q := w.sellTwo(tenThousand, wide)
	same := func(int) (string, string) { return "alice", "r1" }
	over := lines(t, edgeStreams, p, q)
	answers := w.storm(over, w.crowdOf(tenThousand, same), never)
	reservation := answers[0].GetRequest().GetReservationId()
	p.reaches("alice", "r1", "", pending)
	answers = append(answers, w.storm(over, w.crowdOf(100, same), never)...)
	for i, a := range answers {
		if a.GetRequest().GetReservationId() != reservation || reservation == "" {
			t.Fatalf("caller %d is told %v, the first %s", i, a, reservation)
		}
	}
	if got := told(answers); got[pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED] != 1 || got[pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED] != len(answers)-1 {
		t.Errorf("told %v", got)
	}
	p.settled()
	p.balanced(tenThousand, 1)
	w.accepted()
}

// TestFourChecksFindWhatTheyLookFor: each of the four SQL checks has rows when what it looks for is
// there; the database's own guards must be taken down first to put it there.
func TestFourChecksFindWhatTheyLookFor(t *testing.T) {
	w := newWorld(t)
	p := w.start().ready()
	w.install(1, tokens)
	w.grant(1, 5)
	p.stocked(5)
	for _, user := range []string{"alice", "bob"} {
		want(t, p.exchange(w.ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
		p.reaches(user, "r1", "", pending)
	}
	w.accepted()
	p.end()
	const of = "(SELECT reservation_id FROM cellquota.orders WHERE user_id = 'alice')"
	// So that what no constraint or trigger lets in can be there.
	w.exec(`ALTER TABLE cellquota.orders DISABLE TRIGGER USER`)
	w.exec(`ALTER TABLE cellquota.orders DROP CONSTRAINT uq_orders_campaign_sku_user`)
	w.exec(`ALTER TABLE cellquota.orders DROP CONSTRAINT orders_reservation_id_key`)
	w.exec(`DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'cellquota.orders'::regclass AND contype = 'c' LOOP
			EXECUTE format('ALTER TABLE cellquota.orders DROP CONSTRAINT %I', c.conname);
		END LOOP; END $$`)
	reader := w.db.ConnAs(t, migrate.RoleReader)
	for name, c := range map[string]struct {
		check int
		sql   string
	}{
		"two orders of one user":             {1, `UPDATE cellquota.orders SET user_id = 'alice' WHERE user_id = 'bob'`},
		"a token of two buyers":              {2, `UPDATE cellquota.tokens SET order_id = (SELECT order_id FROM cellquota.orders WHERE user_id = 'bob') WHERE reservation_id = ` + of},
		"two orders of one reservation":      {3, `UPDATE cellquota.orders SET reservation_id = ` + of + ` WHERE user_id = 'bob'`},
		"paid, then closed":                  {4, `UPDATE cellquota.orders SET state = 'CLOSED', paid_at = created_at, closed_at = created_at WHERE user_id = 'bob'`},
		"money of a closed order, no refund": {4, `WITH c AS (UPDATE cellquota.orders SET state = 'CLOSED', closed_at = created_at WHERE user_id = 'bob' RETURNING *) INSERT INTO cellquota.payments (order_id, payment_id, amount, currency, state, created_at, updated_at) SELECT order_id, 'p', amount, currency, 'PAID_AFTER_CLOSE', created_at, created_at FROM c`},
	} {
		t.Run(name, func(t *testing.T) {
			tables := []string{"orders", "tokens", "payments"}
			for _, table := range tables {
				w.exec("CREATE TABLE cellquota.kept_" + table + " AS SELECT * FROM cellquota." + table)
			}
			w.exec(c.sql)
			if n, _ := w.rowsOf(reader, fourChecks(t)[c.check-1]); n == 0 {
				t.Errorf("check %d finds nothing", c.check)
			}
			for _, table := range tables {
				w.exec("DELETE FROM cellquota." + table)
				w.exec("INSERT INTO cellquota." + table + " SELECT * FROM cellquota.kept_" + table)
				w.exec("DROP TABLE cellquota.kept_" + table)
			}
			for i, sql := range fourChecks(t) {
				if n, _ := w.rowsOf(reader, sql); n != 0 {
					t.Fatalf("check %d has rows after it was put right", i+1)
				}
			}
		})
	}
}

func never(int) int { return 0 }

// tokens has a row per unit.
func tokens(r *pb.CampaignRules) {
	for _, s := range r.Spec.Skus {
		s.InventoryMode = pb.InventoryMode_INVENTORY_MODE_TOKEN
	}
}

// atOnce calls f for each of 0 … n-1, each in a goroutine of its own, and waits for all.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() { <-begin; f(i) })
	}
	close(begin)
	all.Wait()
}
