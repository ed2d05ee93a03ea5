package campaignreport_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/internal/ids"
)

var taken = time.Date(2026, 11, 11, 1, 0, 0, 0, time.UTC)

// sale is a book of 100 with a reserve of 20 and two cells of 40: cell-1 sold 25 and
// holds 3, cell-2 sold 10 and one of them was restocked.
func sale() undersell.Result {
	q := quantity.Must
	return undersell.Result{
		Side: undersell.Side{
			Campaign: core.Campaign{Spec: core.CampaignSpec{ID: "c", CloseAt: taken.Add(-time.Hour)}, State: core.CampaignClosed, Owner: "ann"},
			Books: []core.Book{{
				Key: core.BookKey{Campaign: "c", SKU: "s"}, SaleLimit: q(100), Reserve: q(20),
				Allocations: []core.Allocation{{Cell: "cell-1", Granted: q(40), LastNumber: 1}, {Cell: "cell-2", Granted: q(40), LastNumber: 1}},
			}},
		},
		Accounts: []undersell.Account{{SKU: "s", SaleLimit: 100, Confirmed: 34, Cells: []undersell.Units{
			{Cause: undersell.Unallocated, Units: 20}, {Cause: undersell.LeftInCell, Cell: "cell-1", Units: 15}, {Cause: undersell.LeftInCell, Cell: "cell-2", Units: 31},
		}}},
		Unreachable: map[ids.CellID]error{},
		Totals: map[ids.CellID]shards.Totals{
			"cell-1": {
				Stocks:   []shards.StockTotals{{SKU: "s", Granted: 40, Available: 12, Reserved: 3, Confirmed: 25, LedgerAvailable: 12, LedgerReserved: 3, LedgerConfirmed: 25, Entries: 54}},
				Requests: []shards.RequestTotals{{SKU: "s", Outcome: "ORDERED", Requests: 28, Units: 28}, {SKU: "s", Outcome: "REJECTED", Reason: "SOLD_OUT", Requests: 4, Units: 4}},
				Orders: []shards.OrderTotals{
					{SKU: "s", State: "PAID", Currency: "CNY", Orders: 25, Units: 25, Amount: "250.1000"}, {SKU: "s", State: "PENDING_PAYMENT", Currency: "CNY", Orders: 3, Units: 3, Amount: "30"},
				},
				Findings: []shards.FindingTotals{{SKU: "s", Kind: "OVERDUE", State: "REPAIRED", Action: "release", Findings: 1, Units: 1}},
			},
			"cell-2": {
				Stocks:   []shards.StockTotals{{SKU: "s", Granted: 40, Available: 31, Confirmed: 9, LedgerAvailable: 31, LedgerConfirmed: 9, TakenBack: 1, Entries: 22}},
				Requests: []shards.RequestTotals{{SKU: "s", Outcome: "ORDERED", Requests: 10, Units: 10}},
				Orders:   []shards.OrderTotals{{SKU: "s", State: "PAID", Currency: "CNY", Orders: 10, Units: 10, Amount: "100.0001"}, {SKU: "s", State: "CLOSED", Currency: "CNY", Orders: 2, Units: 2, Amount: "20"}},
				Refunds:  []shards.RefundTotals{{SKU: "s", State: "REFUNDED", Cause: "REQUESTED", Currency: "CNY", Refunds: 1, Restocked: 1, Amount: "10"}},
			},
		},
	}
}

func made(t *testing.T, result undersell.Result) campaignreport.Report {
	t.Helper()
	r, err := campaignreport.Make(result, taken)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheSumsOfAllCells(t *testing.T) {
	r := made(t, sale())
	if r.Verdict != verify.OK || len(r.Breaches) != 0 || len(r.Unread) != 0 || len(r.Cells) != 2 || r.Orders != (campaignreport.Orders{Paid: 35, Closed: 2}) {
		t.Fatalf("%+v", r)
	}
	want := campaignreport.Counts{
		Requests: []campaignreport.Requests{{Outcome: "ORDERED", Requests: 38, Units: 38}, {Outcome: "REJECTED", Reason: "SOLD_OUT", Requests: 4, Units: 4}},
		Sales: []campaignreport.Sales{
			{State: "PAID", Orders: 35, Units: 35, Amount: "350.1001", Currency: "CNY"},
			{State: "PENDING_PAYMENT", Orders: 3, Units: 3, Amount: "30", Currency: "CNY"},
			{State: "CLOSED", Orders: 2, Units: 2, Amount: "20", Currency: "CNY"},
		},
		Refunds:  []campaignreport.Refunds{{State: "REFUNDED", Cause: "REQUESTED", Refunds: 1, Restocked: 1, Amount: "10", Currency: "CNY"}},
		Findings: []campaignreport.Findings{{Kind: "OVERDUE", State: "REPAIRED", Action: "release", Findings: 1, Units: 1}},
	}
	if got := r.Of("s"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// Every sum that the report asserts, broken alone, is named with its cell.
func TestEverySumThatDoesNotHoldIsNamed(t *testing.T) {
	row := func(r *undersell.Result) *shards.StockTotals { return &r.Totals["cell-1"].Stocks[0] }
	for name, c := range map[string]struct {
		spoil func(*undersell.Result)
		want  string
	}{
		"I10":        {func(r *undersell.Result) { r.Accounts[0].SaleLimit = 101 }, "sale_limit 101, confirmed 34 + unsold 66"},
		"no account": {func(r *undersell.Result) { r.Accounts = nil }, "it has a book and no account"},
		"confirmed":  {func(r *undersell.Result) { r.Accounts[0].Confirmed--; r.Accounts[0].Cells[0].Units++ }, "the account counts 33 confirmed, the cells 34"},
		"row":        {func(r *undersell.Result) { row(r).Granted++ }, "cell-1: granted 41, available 12 + reserved 3 + confirmed 25"},
		"ledger":     {func(r *undersell.Result) { row(r).LedgerReserved++ }, "cell-1: the ledger adds up to 12/4/25, the stock row is 12/3/25"},
		"paid":       {func(r *undersell.Result) { r.Totals["cell-1"].Orders[0].Units++ }, "cell-1: 26 units in PAID orders; confirmed 25 and 0 restocked"},
		"unpaid":     {func(r *undersell.Result) { r.Totals["cell-1"].Orders[1].Units-- }, "cell-1: 2 units in unpaid orders; reserved 3"},
	} {
		t.Run(name, func(t *testing.T) {
			result := sale()
			c.spoil(&result)
			r := made(t, result)
			var all []string
			for _, b := range r.Breaches {
				all = append(all, fmt.Sprintf("%s: %s", b.Cell, b.Detail))
			}
			if r.Verdict != verify.Broken || !strings.Contains(strings.Join(all, "\n"), c.want) {
				t.Errorf("%s: %q", r.Verdict, all)
			}
		})
	}
	reversed := sale()
	row(&reversed).Reversals, row(&reversed).TakenBack = 1, 1
	if r := made(t, reversed); r.Verdict != verify.OK || r.Of("s").Reversals != 1 {
		t.Errorf("a person reversed an entry: %+v", r)
	}
}

// Unknown is not zero: a silent cell has no row, and makes the report UNCHECKED; one
// that is written off is listed, and its units have their cause.
func TestWhatCouldNotBeReadIsNamed(t *testing.T) {
	silent := sale()
	delete(silent.Totals, "cell-2")
	silent.Unreachable["cell-2"] = shards.ErrUnreachable
	silent.Accounts[0].Confirmed, silent.Accounts[0].Cells[2] = 25, undersell.Units{Cause: undersell.Frozen, Cell: "cell-2", Units: 40}
	r := made(t, silent)
	if r.Verdict != verify.VerdictNoWord || len(r.Unread) != 1 || r.Unread[0].Cell != "cell-2" || r.Unread[0].Lost || len(r.Cells) != 1 || r.Orders.Paid != 25 {
		t.Errorf("silent: %+v", r)
	}
	lost := silent
	lost.Side.Books[0].Allocations[1].WrittenOff = quantity.Must(40)
	lost.Accounts[0].Cells[2].Cause = undersell.WrittenOff
	if r := made(t, lost); r.Verdict != verify.OK || len(r.Unread) != 1 || !r.Unread[0].Lost {
		t.Errorf("lost: %+v", r)
	}
	gone := sale() // nobody read it, and it held units
	delete(gone.Totals, "cell-2")
	if r := made(t, gone); r.Verdict == verify.OK || len(r.Unread) != 1 {
		t.Errorf("no record: %+v", r)
	}
}

func TestTheArchivedDocumentIsReadBack(t *testing.T) {
	r := made(t, sale())
	content, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	object := core.ArchiveObject{Name: "campaigns/c/report-0.json"}
	back, err := campaignreport.Decode(object, content)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%v\n%+v\n%+v", err, back, r)
	}
	old := `{"schema":1,"kind":"final-report","campaign_id":"c","spec":{},"owner":"ann","orders":{"paid":2,"closed":1},` +
		`"skus":[{"sku_id":"s","sale_limit":10,"confirmed":2,"cells":[{"cause":"UNALLOCATED","units":%d}]}]}`
	first, err := campaignreport.Decode(object, fmt.Appendf(nil, old, 8))
	if err != nil || first.Verdict != verify.OK || first.Orders.Paid != 2 || first.SKUs[0].Unsold() != 8 {
		t.Errorf("schema 1: %+v, %v", first, err)
	}
	if broken, err := campaignreport.Decode(object, fmt.Appendf(nil, old, 7)); err != nil || broken.Verdict != verify.Broken {
		t.Errorf("schema 1, off by one: %+v, %v", broken, err)
	}
	for _, bad := range []string{"", "[]", `{"kind":"journal","schema":1}`, `{"kind":"final-report","schema":3}`, `{"kind":"final-report"}`} {
		if _, err := campaignreport.Decode(object, []byte(bad)); !errors.Is(err, archive.ErrCorrupt) || !strings.Contains(err.Error(), object.Name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// The largest campaign's report fits one object of the archive, and no count is lost.
func TestTheLargestCampaignFits(t *testing.T) {
	result := sale()
	book, totals := &result.Side.Books[0], result.Totals["cell-2"]
	totals.Stocks = []shards.StockTotals{{SKU: "s"}}
	totals.Orders, totals.Refunds = nil, nil
	for i := range 100_000 {
		id := ids.CellID(fmt.Sprintf("cell-%063d", i)[:63])
		book.Allocations = append(book.Allocations, core.Allocation{Cell: id, LastNumber: 1})
		result.Totals[id] = totals
	}
	r := made(t, result)
	content, err := r.Encode()
	if err != nil || len(content) > archive.MaxContent {
		t.Fatalf("%d bytes, %v", len(content), err)
	}
	if got := r.Of("s").Requests; got[0].Requests != 38+10*100_000 {
		t.Errorf("%+v", got)
	}
}
