package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// soldOut is a book of two cells that sold everything, and what is known of it.
func soldOut() (core.Book, core.FinalInputs) {
	q := quantity.Must
	book := core.Book{
		Key: core.BookKey{Campaign: "c", SKU: "s"}, SaleLimit: q(30), Version: 4, LastRecordID: "r",
		Allocations: []core.Allocation{
			{Cell: "cell-1", Granted: q(20), FenceVersion: 1, State: core.CellActive},
			{Cell: "cell-2", Granted: q(10), FenceVersion: 1, State: core.CellActive},
		},
	}
	return book, core.FinalInputs{
		Campaign: core.Campaign{Spec: core.CampaignSpec{ID: "c", Refund: core.RefundNoRestock}, State: core.CampaignPublished},
		Cells:    map[ids.CellID]core.Cell{"cell-1": cell("cell-1", core.CellActive, 1), "cell-2": cell("cell-2", core.CellActive, 1)},
		Facts: map[ids.CellID]core.HeldFacts{
			"cell-1": {FenceVersion: 1, Granted: q(20), Confirmed: q(20)}, "cell-2": {FenceVersion: 1, Granted: q(10), Confirmed: q(10)},
		},
	}
}

// R-066, G-09: one condition short of all is not final, and the reason names it.
func TestAnythingLessThanAllIsNotFinal(t *testing.T) {
	if book, in := soldOut(); book.WhyNotFinal(in) != "" {
		t.Fatalf("all conditions hold: %s", book.WhyNotFinal(in))
	}
	q := quantity.Must
	set := func(in *core.FinalInputs, id ids.CellID, c core.Cell) { in.Cells[id] = c }
	for name, c := range map[string]struct {
		spoil func(*core.Book, *core.FinalInputs)
		why   string
	}{
		"reserve":                    {func(b *core.Book, _ *core.FinalInputs) { b.Reserve, b.SaleLimit = q(1), q(31) }, "the reserve holds 1"},
		"RESTOCK, on sale":           {func(_ *core.Book, in *core.FinalInputs) { in.Campaign.Spec.Refund = core.RefundRestock }, "refund"},
		"open adjustment":            {func(_ *core.Book, in *core.FinalInputs) { in.Open = true }, "no answer"},
		"lowering":                   {func(b *core.Book, _ *core.FinalInputs) { b.LimitTarget = q(29) }, "lowered"},
		"cancelled":                  {func(_ *core.Book, in *core.FinalInputs) { in.Campaign.CancelledBy = "op" }, "does not sell"},
		"publishing":                 {func(_ *core.Book, in *core.FinalInputs) { in.Campaign.State = core.CampaignPublishing }, "does not sell"},
		"declared":                   {func(b *core.Book, _ *core.FinalInputs) { b.Final = true }, "already"},
		"settled":                    {func(b *core.Book, _ *core.FinalInputs) { b.Settled = true }, "does not sell"},
		"unknown cell":               {func(_ *core.Book, in *core.FinalInputs) { delete(in.Cells, "cell-2") }, "cell-2: it is unknown"},
		"no report":                  {func(_ *core.Book, in *core.FinalInputs) { delete(in.Facts, "cell-2") }, "cell-2: nothing is known"},
		"report of an older version": {func(_ *core.Book, in *core.FinalInputs) { set(in, "cell-2", cell("cell-2", core.CellActive, 2)) }, "cell-2: nothing is known"},
		"a grant on its way": {func(_ *core.Book, in *core.FinalInputs) {
			in.Facts["cell-2"] = core.HeldFacts{FenceVersion: 1, Granted: q(9), Confirmed: q(9)}
		}, "cell-2: it was granted 9 of 10"},
		"reserved or available": {func(_ *core.Book, in *core.FinalInputs) {
			in.Facts["cell-2"] = core.HeldFacts{FenceVersion: 1, Granted: q(10), Confirmed: q(9)}
		}, "cell-2: it sold 9 of 10"},
		"suspect":   {func(_ *core.Book, in *core.FinalInputs) { set(in, "cell-2", cell("cell-2", core.CellSuspect, 1)) }, "cell-2: no process"},
		"fencing":   {func(_ *core.Book, in *core.FinalInputs) { set(in, "cell-2", cell("cell-2", core.CellFencing, 1)) }, "frozen"},
		"fenced":    {func(_ *core.Book, in *core.FinalInputs) { set(in, "cell-2", cell("cell-2", core.CellFenced, 1)) }, "frozen"},
		"restoring": {func(_ *core.Book, in *core.FinalInputs) { set(in, "cell-2", cell("cell-2", core.CellRestoring, 1)) }, "frozen"},
		"regressed": {func(_ *core.Book, in *core.FinalInputs) { set(in, "cell-2", cell("cell-2", core.CellRegressed, 1)) }, "frozen"},
	} {
		book, in := soldOut()
		c.spoil(&book, &in)
		if _, err := book.BecomeFinal(in); !errors.Is(err, core.ErrNotFinal) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

func TestFinalIs(t *testing.T) {
	q := quantity.Must
	for name, spoil := range map[string]func(*core.Book, *core.FinalInputs){
		"sold out on sale":       func(*core.Book, *core.FinalInputs) {},
		"RESTOCK, after the end": func(_ *core.Book, in *core.FinalInputs) { in.Campaign.Spec.Refund, in.Ended = core.RefundRestock, true },
		"closed":                 func(_ *core.Book, in *core.FinalInputs) { in.Campaign.State, in.Ended = core.CampaignClosed, true },
		"paused":                 func(_ *core.Book, in *core.FinalInputs) { in.Campaign.State = core.CampaignPaused },
		"a cell written off": func(b *core.Book, in *core.FinalInputs) {
			b.Allocations[1].WrittenOff = q(10)
			delete(in.Facts, "cell-2")
			in.Cells["cell-2"] = cell("cell-2", core.CellRetired, 1)
		},
		"a cell that was given nothing": func(b *core.Book, in *core.FinalInputs) {
			b.SaleLimit, b.Allocations[1].Granted = q(20), q(0)
			delete(in.Facts, "cell-2")
		},
		"fenced and reclaimed, by its proof": func(_ *core.Book, in *core.FinalInputs) {
			fenced := cell("cell-2", core.CellFenced, 2)
			fenced.Reclaimed = true
			in.Cells["cell-2"] = fenced
			in.Facts["cell-2"] = core.HeldFacts{FenceVersion: 2, Granted: q(10), Confirmed: q(10)}
		},
	} {
		book, in := soldOut()
		spoil(&book, &in)
		final, err := book.BecomeFinal(in)
		if err != nil || !final.Final || book.Final {
			t.Errorf("%s: %+v, %v", name, final, err)
		}
	}
}

// Units that come home behind FINAL (a refund after the end restocks, then the
// cell is fenced) are booked and granted to nobody; a book that refused them would
// hold up the fence.
func TestUnitsComeHomeBehindFinal(t *testing.T) {
	book, in := soldOut()
	final, err := book.BecomeFinal(in)
	if err != nil {
		t.Fatal(err)
	}
	back, err := final.SealBack("cell-2", quantity.Must(1))
	if err != nil || back.Reserve != quantity.Must(1) || !back.Final {
		t.Fatalf("sealed back: %+v, %v", back, err)
	}
	if _, _, err := back.Grant(cell("cell-1", core.CellActive, 1), quantity.Must(1)); !errors.Is(err, core.ErrFinal) {
		t.Errorf("granted behind FINAL: %v", err)
	}
}

func TestSettlingTakesTheLimitOutOnce(t *testing.T) {
	q := quantity.Must
	stock := core.PhysicalStock{SKU: "s", Units: q(100), Version: 2, Limits: map[ids.CampaignID]quantity.Quantity{"a": q(40), "b": q(60)}}
	next, changed, err := stock.Settle("a", q(35))
	if err != nil || !changed || next.Units != q(65) || next.Limits["a"] != q(0) || next.Limits["b"] != q(60) || next.Version != 3 {
		t.Fatalf("settled: %+v, %v, %v", next, changed, err)
	}
	if again, changed, err := next.Settle("a", q(35)); err != nil || changed || again.Units != q(65) {
		t.Errorf("settled twice: %+v, %v, %v", again, changed, err)
	}
	if _, _, err := stock.Settle("a", q(41)); !errors.Is(err, core.ErrBroken) {
		t.Errorf("more is gone than the limit: %v", err)
	}
}
