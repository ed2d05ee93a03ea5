package shard_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/cell/shard"
)

// TestNumbersAreTakenInOrder: exactly the next one; the same id again is the same result.
func TestNumbersAreTakenInOrder(t *testing.T) {
	b := newBench(t)
	b.install(rules(phone))
	first := b.numbered(phone, shard.Grant, 10)
	skip := first
	skip.ID, skip.Number = "skip", 2
	var gap *shard.NumberGap
	if _, err := b.store.ApplyAdjustment(b.ctx, skip); !errors.As(err, &gap) || gap.Last != 0 || gap.Got != 2 {
		t.Fatalf("gap: %v", err)
	}
	for i := range 3 {
		res, err := b.store.ApplyAdjustment(b.ctx, first)
		b.must(err)
		if res.Outcome != shard.Applied || res.Replayed != (i > 0) || res.Stock.Available != 10 || res.Stock.LastNumber != 1 ||
			res.Stock.LastAdjustmentID != first.ID || res.Stock.BookRecordID != "book-1" {
			t.Fatalf("apply %d: %+v", i, res)
		}
	}
	again := first
	again.ID = "another id under number 1"
	if _, err := b.store.ApplyAdjustment(b.ctx, again); !errors.As(err, &gap) || gap.Last != 1 {
		t.Errorf("number used twice: %v", err)
	}
	for name, change := range map[string]func(*shard.Adjustment){
		"other units": func(a *shard.Adjustment) { a.Units = 11 },
		"other kind":  func(a *shard.Adjustment) { a.Kind = shard.Return },
		"other SKU":   func(a *shard.Adjustment) { a.SKU = "case" },
	} {
		other := first
		change(&other)
		if _, err := b.store.ApplyAdjustment(b.ctx, other); !errors.Is(err, shard.ErrConflict) && !errors.Is(err, shard.ErrNotFound) {
			t.Errorf("%s under a known id: %v", name, err)
		}
	}
	if e := b.effects()[first.ID]; e.GetStockDelta() != 10 || e.GetStockVersion() != 1 || e.GetAdmissionBuild() != nil {
		t.Errorf("effect %v", e)
	}
	b.invariants()
}

// TestReturns: taken when they fit, refused with their number used up when they do not.
func TestReturns(t *testing.T) {
	b := newBench(t)
	b.sell(3)
	b.order("u")
	refused, err := b.store.ApplyAdjustment(b.ctx, b.numbered(phone, shard.Return, 3))
	b.must(err)
	if refused.Outcome != shard.Refused || refused.Stock.Available != 2 || refused.Stock.LastNumber != 2 {
		t.Fatalf("%+v", refused)
	}
	applied, err := b.store.ApplyAdjustment(b.ctx, b.numbered(phone, shard.Return, 2))
	b.must(err)
	if applied.Outcome != shard.Applied || applied.Stock.Available != 0 || applied.Stock.Granted != 1 {
		t.Fatalf("%+v", applied)
	}
	if e := b.effects()[applied.Stock.LastAdjustmentID]; e.GetStockDelta() != -2 {
		t.Errorf("effect %v", e)
	}
	if e := b.effects()["credit:"+refused.Stock.LastAdjustmentID]; e.GetStockDelta() != 3 {
		t.Errorf("credit %v", e)
	}
	if n := metricValue(t, b.reg, "cellquota_stock_update_failures_total"); n != 1 {
		t.Errorf("stock_update_failures_total is %v", n)
	}
	b.invariants()
}

// TestApplyAndVoidExcludeEachOther: whichever commits first decides, in either order and at once.
func TestApplyAndVoidExcludeEachOther(t *testing.T) {
	b := newBench(t)
	b.install(rules(phone))
	apply := b.numbered(phone, shard.Grant, 5)
	void := apply
	void.Void, void.Units = true, 0
	first, err := b.store.ApplyAdjustment(b.ctx, apply)
	b.must(err)
	late, err := b.store.ApplyAdjustment(b.ctx, void)
	b.must(err)
	if first.Outcome != shard.Applied || late.Outcome != shard.Applied || !late.Replayed {
		t.Errorf("apply then void: %+v %+v", first, late)
	}
	apply = b.numbered(phone, shard.Grant, 5)
	void = apply
	void.Void, void.Units = true, 0
	first, err = b.store.ApplyAdjustment(b.ctx, void)
	b.must(err)
	late, err = b.store.ApplyAdjustment(b.ctx, apply)
	b.must(err)
	if first.Outcome != shard.Voided || late.Outcome != shard.Voided || late.Stock.Available != 5 {
		t.Errorf("void then apply: %+v %+v", first, late)
	}
	for range 10 {
		apply = b.numbered(phone, shard.Grant, 1)
		void = apply
		void.Void, void.Units = true, 0
		var wg sync.WaitGroup
		outcomes := make([]shard.AdjustmentOutcome, 8)
		for i := range outcomes {
			a := apply
			if i%2 == 1 {
				a = void
			}
			wg.Go(func() {
				res, err := b.store.ApplyAdjustment(b.ctx, a)
				if err != nil {
					t.Error(err)
				}
				outcomes[i] = res.Outcome
			})
		}
		wg.Wait()
		for _, o := range outcomes {
			if o != outcomes[0] {
				t.Fatalf("two answers for one adjustment: %v", outcomes)
			}
		}
	}
	b.invariants()
}

// TestRules: versions only rise, whatever the order; the scope is for ever; what cannot be carried out
// is refused by name.
func TestRules(t *testing.T) {
	b := newBench(t)
	r := rules(phone, "case")
	r.Version = 2
	install := func(want shard.RulesOutcome) {
		t.Helper()
		if got, err := b.store.InstallRules(b.ctx, 1, "term-1", r); err != nil || got != want {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	}
	mark := func() string { m, err := b.store.CampaignsMark(b.ctx); b.must(err); return m }
	before := mark()
	install(shard.RulesInstalled)
	if mark() == before {
		t.Error("the mark did not change")
	}
	before = mark()
	install(shard.RulesStale)
	r.Version = 1
	install(shard.RulesStale)
	if mark() != before {
		t.Error("a stale version changed the mark")
	}
	r.Version, r.Buckets = 3, nil // later versions need not deal buckets again
	install(shard.RulesInstalled)
	all, err := b.store.Campaigns(b.ctx)
	b.must(err)
	if len(all) != 1 || all[0].Version != 3 || all[0].State != "PUBLISHED" || len(all[0].Rules.Spec.Skus) != 2 {
		t.Fatalf("%+v", all)
	}
	table, err := b.store.Buckets(b.ctx, campaign)
	b.must(err)
	if !table.Owns("", "anyone") {
		t.Error("buckets were lost")
	}
	for name, c := range map[string]struct {
		want   error
		change func()
	}{
		"mode":      {shard.ErrUnsupported, func() { r.Spec.Skus[0].InventoryMode = 9 }},
		"scope":     {shard.ErrInvalid, func() { r.Spec.PurchaseScope = 2 }},
		"price":     {shard.ErrInvalid, func() { r.Spec.Skus[0].Price.Amount = "1e3" }},
		"draft":     {shard.ErrInvalid, func() { r.State = 1 }},
		"window":    {shard.ErrInvalid, func() { r.Spec.CloseAt = r.Spec.OpenAt }},
		"no SKU":    {shard.ErrInvalid, func() { r.Spec.Skus = nil }},
		"no ttl":    {shard.ErrInvalid, func() { r.Spec.ReservationTtl = nil }},
		"old term":  {shard.ErrTermLower, func() { b.must(b.store.RaiseTerm(b.ctx, 9, "nine")) }},
		"bad range": {shard.ErrInvalid, func() { r.Buckets = rules(phone).Buckets; r.Buckets[0].Ranges[0].BucketTo = 4096 }},
	} {
		if name == "old term" {
			continue // last: it changes the shard
		}
		r = rules(phone, "case")
		r.Version = 4
		c.change()
		if _, err := b.store.InstallRules(b.ctx, 1, "term-1", r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	b.must(b.store.RaiseTerm(b.ctx, 9, "nine"))
	r = rules(phone)
	r.Version = 5
	if _, err := b.store.InstallRules(b.ctx, 1, "term-1", r); !errors.Is(err, shard.ErrTermLower) {
		t.Errorf("old term: %v", err)
	}
	b.must(b.store.RecordBookChange(b.ctx, 9, "nine", campaign, phone, "book-7"))
	if s := b.stock(phone); s.BookRecordID != "book-7" {
		t.Errorf("book record %q", s.BookRecordID)
	}
	if err := b.store.RecordBookChange(b.ctx, 9, "nine", campaign, "nothing", "book-8"); !errors.Is(err, shard.ErrNotFound) {
		t.Error(err)
	}
}
