package shard_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func tokens(r *cellquotav1.CampaignRules) {
	for _, s := range r.Spec.Skus {
		s.InventoryMode = cellquotav1.InventoryMode_INVENTORY_MODE_TOKEN
	}
}

// states counts the rows of the phone: "FREE BOUND SOLD SEALED".
func (b *bench) states() [4]int {
	b.t.Helper()
	var n [4]int
	b.must(b.admin.QueryRow(b.ctx, `SELECT count(*) FILTER (WHERE state = 'FREE'), count(*) FILTER (WHERE state = 'BOUND'), count(*) FILTER (WHERE state = 'SOLD'),
		count(*) FILTER (WHERE state = 'SEALED') FROM cellquota.v_tokens WHERE sku_id = $1`, string(phone)).Scan(&n[0], &n[1], &n[2], &n[3]))
	return n
}

// TestTokenLife: one row per unit through a whole sale. The row says whose it is, serials are minted at
// each grant and never come back once they left, and a refunded unit returns with its own row.
func TestTokenLife(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(5, tokens, restocks, shortTTL, longWindow)
	b.must(b.store.Heartbeat(b.ctx))
	want := func(when string, free, bound, sold, sealed int) {
		t.Helper()
		if got := b.states(); got != [4]int{free, bound, sold, sealed} {
			t.Fatalf("%s: %v", when, got)
		}
		b.invariants()
	}
	want("granted", 5, 0, 0, 0)
	pair := b.order("ann", func(m *shard.Message) { m.Quantity = 2 })
	want("reserved", 3, 2, 0, 0)
	if n := one[int](b, "SELECT count(*) FROM cellquota.v_tokens WHERE order_id = $1 AND reservation_id = $2", string(pair), string(pair.Reservation())); n != 2 {
		t.Errorf("%d rows name their order and reservation", n)
	}
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: pair, Payment: "p"})
	want("paid", 3, 0, 2, 0)
	cancel := b.order("ben")
	b.step(shard.Step{Kind: shard.StepCancel, Order: cancel, User: "ben"})
	want("cancelled", 3, 0, 2, 0)
	b.order("cid")
	b.advance(20 * time.Second)
	b.closeDue(shard.CloseWaits{})
	want("expired", 3, 0, 2, 0)
	res, err := b.store.ApplyAdjustment(b.ctx, b.numbered(phone, shard.Return, 1))
	b.must(err)
	if res.Outcome != shard.Applied {
		t.Fatalf("%+v", res)
	}
	want("returned", 2, 0, 2, 1)
	b.step(wantRefund(pair, "rf-1"))
	b.step(shard.Step{Kind: shard.StepRefunded, Order: pair, Payment: "p", RefundID: "rf-1"})
	want("refunded", 4, 0, 0, 1)
	open := b.order("dan")
	b.fenceAndRestore()
	want("fenced", 0, 1, 0, 4)
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: open, Payment: "p"})
	b.grant(phone, 2)
	want("granted anew", 2, 0, 1, 4)
	b.order("eve")
	want("sold on", 1, 1, 1, 4)
	if n := one[int](b, "SELECT count(*) FROM cellquota.tokens WHERE token_id !~ '^cell-1\\.t[0-9a-f]{20}-[0-9]{6}$'"); n != 0 {
		t.Errorf("%d serials are of another grammar: %s", n, one[string](b, "SELECT min(token_id) FROM cellquota.tokens"))
	}
}

// TestNoFreeRowIsAFinding: where the counter says that a unit is available and no row is free, nothing
// is sold, one finding says so, and the rest of the batch is not touched.
func TestNoFreeRowIsAFinding(t *testing.T) {
	b := newBench(t)
	b.sell(3, tokens)
	b.exec(b.admin, "UPDATE cellquota.tokens SET state = 'SEALED' WHERE token_id IN (SELECT token_id FROM cellquota.tokens ORDER BY token_id LIMIT 2)")
	got := b.apply(b.message("a"), b.message("b"), b.message("c", func(m *shard.Message) { m.Quantity = 2 }))
	if got[0].Outcome != shard.Ordered || got[1].Reason != reservation.SoldOut || got[2].Reason != reservation.SoldOut {
		t.Fatalf("%+v", got)
	}
	b.apply(b.message("d"))
	if n, units := one[int](b, "SELECT count(*) FROM cellquota.v_findings WHERE kind = 'QUANTITY_MISMATCH'"), one[int](b, "SELECT units FROM cellquota.v_findings"); n != 1 || units != 2 {
		t.Errorf("%d findings, of %d units", n, units)
	}
	if metricValue(t, b.reg, "cellquota_stock_update_failures_total") == 0 {
		t.Error("no metric moved")
	}
	if s := b.stock(phone); s.Available != 2 || s.Reserved != 1 {
		t.Errorf("stock %+v", s)
	}
	// A return does not take what has no row either.
	res, err := b.store.ApplyAdjustment(b.ctx, b.numbered(phone, shard.Return, 1))
	if err != nil || res.Outcome != shard.Refused {
		t.Errorf("return: %+v, %v", res, err)
	}
	// A fence seals what there is, and payments are facts: both stand, and both are findings.
	b.exec(b.admin, "UPDATE cellquota.tokens SET state = 'FREE', reservation_id = NULL, order_id = NULL WHERE state = 'BOUND'")
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: b.message("a").Reservation.Order(), Payment: "p"})
	b.fenceAndRestore()
	if ids := one[string](b, "SELECT string_agg(split_part(finding_id, '.', 2), ' ' ORDER BY finding_id) FROM cellquota.findings"); ids != "CONFIRM SEAL free" {
		t.Errorf("findings %s", ids)
	}
}

// TestTheLedgerGuardsTheRows: whoever writes an entry that takes a free row which is not there, by hand
// or by a program of an older step that does not look, is refused by the database itself; and nobody but
// the ledger writes rows.
func TestTheLedgerGuardsTheRows(t *testing.T) {
	b := newBench(t)
	b.sell(1, tokens)
	b.exec(b.admin, "UPDATE cellquota.tokens SET state = 'SEALED'")
	app := b.db.ConnAs(t, migrate.RoleApp)
	if _, err := app.Exec(b.ctx, takeOne); err == nil || !strings.Contains(err.Error(), "CQ009") {
		t.Errorf("taken without a row: %v", err)
	}
	for _, sql := range []string{"UPDATE cellquota.tokens SET state = 'FREE'", "DELETE FROM cellquota.tokens", "INSERT INTO cellquota.tokens VALUES ('x', 'c', 's', 'FREE')"} {
		if _, err := app.Exec(b.ctx, sql); err == nil {
			t.Errorf("the cell's role may: %s", sql)
		}
	}
	if s := b.stock(phone); s.Available != 1 {
		t.Errorf("stock %+v", s)
	}
}

// TestTokensOfManyPartitions: batches of several SKUs and partitions at once neither deadlock nor share
// a row (K54).
func TestTokensOfTwoSKUsAtOnce(t *testing.T) {
	b := newBench(t)
	b.sell(40, tokens, func(r *cellquotav1.CampaignRules) { r.Spec.Skus = append(r.Spec.Skus, rules("case").Spec.Skus...) }, tokens)
	b.grant("case", 40)
	b.raise("case")
	build := b.build
	parallel(b, 4, func(p int32) error {
		if err := b.store.StartPosition(b.ctx, shard.Position{Topic: topic, Partition: p, TopicID: topicID, Epoch: -1}); err != nil {
			return err
		}
		for round := range int64(10) {
			from, _, err := b.store.ReadPosition(b.ctx, topic, p)
			if err != nil {
				return err
			}
			one := buyer(int(p), int(round), phone, build)
			two := buyer(int(p), int(round), "case", build)
			one.Offset, two.Offset = from.Next, from.Next+1
			if (p+int32(round))%2 == 0 {
				one, two = two, one
				one.Offset, two.Offset = from.Next, from.Next+1
			}
			if _, err := b.store.ApplyOrders(b.ctx, shard.Batch{From: from, To: from.Next + 2, Messages: []shard.Message{one, two}}); err != nil {
				return err
			}
		}
		return nil
	})
	if got := b.states(); got != [4]int{0, 40, 0, 0} {
		t.Errorf("%v", got)
	}
	b.invariants()
}

// TestSchemaOfStepTwoHasNoTokens: a program of this step refuses rules in TOKEN mode there, by name.
func TestSchemaOfStepTwoHasNoTokens(t *testing.T) {
	b := benchAt(t, 2)
	r := rules(phone)
	tokens(r)
	if _, err := b.store.InstallRules(b.ctx, 1, "term-1", r); !errors.Is(err, shard.ErrUnsupported) || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("%v", err)
	}
	b.must(migrate.Up(b.ctx, b.db.DSN()))
	b.install(r)
}

// TestManyRowsAreNotHurried: a grant and a return of 20,000 rows pass a bound on statements that orders keep.
func TestManyRowsAreNotHurried(t *testing.T) {
	b := newBench(t)
	b.sell(1, tokens)
	hurried, _ := b.open(shard.Config{StatementTimeout: 100 * time.Millisecond}, nil)
	hurried.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	for _, kind := range []shard.AdjustmentKind{shard.Grant, shard.Return} {
		res, err := hurried.ApplyAdjustment(b.ctx, b.numbered(phone, kind, 20_000))
		b.must(err)
		if res.Outcome != shard.Applied {
			t.Fatalf("%s: %+v", kind, res)
		}
	}
}
