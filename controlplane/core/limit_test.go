package core_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// What each verb of the limit makes of the demo's book: limit 10,000, reserve 400, four cells of 2,400.
func TestSetLimit(t *testing.T) {
	for _, row := range []struct {
		name                   string
		before, ask            int64 // before: a lowering to it was asked for first; 0: none
		limit, reserve, target int64
		err                    error
	}{
		{name: "a raise adds to the reserve", ask: 10_100, limit: 10_100, reserve: 500},
		{name: "the same limit", ask: 10_000, limit: 10_000, reserve: 400},
		{name: "a lowering that the reserve covers is over at once", ask: 9_700, limit: 9_700, reserve: 100},
		{name: "the reserve first, the rest is asked for", ask: 9_000, limit: 9_600, target: 9_000},
		{name: "a raise cancels a lowering", before: 9_000, ask: 9_650, limit: 9_650, reserve: 50},
		{name: "the present limit cancels a lowering", before: 9_000, ask: 9_600, limit: 9_600},
		{name: "a lowering to another target", before: 9_000, ask: 9_500, limit: 9_600, target: 9_500},
		{name: "no limit at all", ask: 0, err: rpcstatus.ErrInvalidArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := demoBook(t)
			var err error
			if row.before > 0 {
				if b, err = b.SetLimit(quantity.Must(row.before)); err != nil {
					t.Fatal(err)
				}
			}
			b, err = b.SetLimit(quantity.Must(row.ask))
			if row.err != nil {
				if !errors.Is(err, row.err) {
					t.Fatalf("%v, want %v", err, row.err)
				}
				return
			}
			if err != nil || b.SaleLimit.Int64() != row.limit || b.Reserve.Int64() != row.reserve || b.LimitTarget.Int64() != row.target || b.Check() != nil {
				t.Fatalf("limit %s, reserve %s, target %s, %v; want %+v", b.SaleLimit, b.Reserve, b.LimitTarget, err, row)
			}
		})
	}
}

// While a lowering is under way no unit of the reserve goes to a cell, and what cells return is taken.
func TestALoweringHasTheReserve(t *testing.T) {
	b, err := demoBook(t).SetLimit(quantity.Must(9_000))
	if err != nil {
		t.Fatal(err)
	}
	active := cell("cell-1", core.CellActive, 1)
	if b, _, err = b.ProposeReturn(active, quantity.Must(700)); err != nil {
		t.Fatal(err)
	}
	if b, err = b.BookReturn("cell-1", quantity.Must(700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Grant(active, quantity.Must(1)); !errors.Is(err, core.ErrLowering) {
		t.Fatalf("a grant during a lowering: %v", err)
	}
	b, moved, err := b.Shrink()
	if err != nil || !moved || b.SaleLimit.Int64() != 9_000 || b.Reserve.Int64() != 100 || !b.LimitTarget.IsZero() {
		t.Fatalf("limit %s, reserve %s, target %s, moved %t, %v", b.SaleLimit, b.Reserve, b.LimitTarget, moved, err)
	}
	if _, moved, _ := b.Shrink(); moved {
		t.Error("a book without a target shrinks")
	}
	if _, _, err := b.Grant(active, quantity.Must(1)); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A lowering that ends at its floor leaves a book that grants again.
func TestEndLowering(t *testing.T) {
	b, err := demoBook(t).SetLimit(quantity.Must(1))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = b.EndLowering(); err != nil || b.SaleLimit.Int64() != 9_600 || !b.LimitTarget.IsZero() {
		t.Fatalf("limit %s, target %s, %v", b.SaleLimit, b.LimitTarget, err)
	}
}

// FINAL_SOLD_OUT: no raise, no lowering, no return.
func TestAFinalBookKeepsItsLimit(t *testing.T) {
	b := demoBook(t)
	b.Reserve, b.SaleLimit, b.Final = quantity.Quantity{}, quantity.Must(9_600), true
	for _, limit := range []int64{9_000, 9_600, 9_700} {
		if _, err := b.SetLimit(quantity.Must(limit)); !errors.Is(err, core.ErrFinal) {
			t.Errorf("set to %d: %v", limit, err)
		}
	}
	if _, _, err := b.ProposeReturn(cell("cell-1", core.CellActive, 1), quantity.Must(1)); !errors.Is(err, core.ErrFinal) {
		t.Errorf("return: %v", err)
	}
}

// a raise must fit the stock beside the other campaigns.
func TestStockSetLimit(t *testing.T) {
	q := quantity.Must
	p, _, _ := core.PhysicalStock{}.Take("phone-x", "a", q(100), q(60))
	p, _, err := p.Take("phone-x", "b", q(100), q(30))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.SetLimit("a", q(71)); !errors.Is(err, core.ErrStockShort) {
		t.Errorf("above the stock: %v", err)
	}
	raised, changed, err := p.SetLimit("a", q(70))
	if err != nil || !changed || raised.Limits["a"] != q(70) || p.Limits["a"] != q(60) || raised.Version != p.Version+1 {
		t.Errorf("raise: %+v, %t, %v", raised, changed, err)
	}
	if _, changed, err := raised.SetLimit("a", q(70)); changed || err != nil {
		t.Errorf("again: %t, %v", changed, err)
	}
	if _, _, err := p.SetLimit("c", q(1)); !errors.Is(err, core.ErrBroken) {
		t.Errorf("a campaign that holds nothing: %v", err)
	}
}
