package drain

import (
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

func sku(name string, gives bool, granted, available, reserved int64, open int) SKU {
	return SKU{
		Book: core.Book{Key: core.BookKey{Campaign: "c", SKU: ids.SKUID(name)}}, Gives: gives,
		Granted: quantity.Must(granted), Available: quantity.Must(available), Reserved: quantity.Must(reserved), Open: open,
	}
}

// The table of step's comment, and that every wait names all that is in the way.
func TestStep(t *testing.T) {
	home := []Buckets{{"c", 1024}}
	for _, row := range []struct {
		name  string
		facts Facts
		step  string
		asks  []int64
		words []string
		not   string
	}{
		{"silent", Facts{Live: true, Unread: "cannot be read: refused", SKUs: []SKU{sku("a", true, 9, 9, 0, 0)}}, StepReturns, nil, []string{"refused"}, "available"},
		{"all is there", Facts{Live: true, SKUs: []SKU{sku("a", true, 30, 20, 7, 0)}, Buckets: home}, StepReturns, []int64{20}, []string{"20 units are available", "7 units are in orders", "1024 buckets of campaign c"}, "lease"},
		{"one SKU waits for its answer, the other is asked", Facts{Live: true, SKUs: []SKU{sku("a", true, 30, 20, 0, 1), sku("b", true, 5, 5, 0, 0)}}, StepReturns, []int64{5}, []string{"1 adjustments have no answer", "25 units"}, "home"},
		{"more available than allocated: a return that the journal has not booked", Facts{Live: true, SKUs: []SKU{sku("a", true, 3, 20, 0, 0)}}, StepReturns, []int64{3}, nil, "20"},
		{"nothing allocated and something available", Facts{Live: true, SKUs: []SKU{sku("a", true, 0, 20, 0, 0)}}, "", nil, nil, ""},
		{"only orders", Facts{Live: true, SKUs: []SKU{sku("a", true, 30, 0, 7, 0)}, Buckets: home}, StepOrders, nil, []string{"7 units", "1024"}, "available"},
		{"orders of a sale that is over", Facts{Live: true, SKUs: []SKU{sku("a", false, 30, 20, 1, 0)}}, StepOrders, nil, []string{"1 units are in orders"}, "available"},
		{"only buckets", Facts{Live: true, SKUs: []SKU{sku("a", true, 30, 0, 0, 0)}, Buckets: home}, StepBuckets, nil, []string{"cellctl route handover"}, "orders"},
		{"what a sale that is over has left is its account's", Facts{Live: true, SKUs: []SKU{sku("a", false, 30, 20, 0, 0)}}, "", nil, nil, ""},
		{"dead", Facts{SKUs: []SKU{sku("a", true, 30, 20, 0, 0)}}, StepReturns, []int64{20}, []string{"no process of the cell holds a lease"}, ""},
		{"dead, and nothing to do for it", Facts{Buckets: home}, StepBuckets, nil, nil, "lease"},
		{"nothing", Facts{}, "", nil, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := step(row.facts)
			if n.Step != row.step || n.Done != (row.step == "") {
				t.Errorf("step %q, done %v", n.Step, n.Done)
			}
			var asks []int64
			for _, a := range n.Asks {
				asks = append(asks, a.Units.Int64())
			}
			if len(asks) != len(row.asks) || len(asks) > 0 && asks[0] != row.asks[0] {
				t.Errorf("asks for %v, want %v", asks, row.asks)
			}
			for _, w := range row.words {
				if !strings.Contains(n.Detail, w) {
					t.Errorf("%q does not say %q", n.Detail, w)
				}
			}
			if row.not != "" && strings.Contains(n.Detail, row.not) {
				t.Errorf("%q says %q", n.Detail, row.not)
			}
		})
	}
}

// A cell that is home in very many sales names some of them.
func TestHomesAreBounded(t *testing.T) {
	var f Facts
	for range 40 {
		f.Buckets = append(f.Buckets, Buckets{"c", 1})
	}
	if out := f.homes(); len(out) != namedHomes+1 || !strings.Contains(out[namedHomes], "32 campaigns more") {
		t.Errorf("%d lines, the last %q", len(out), out[len(out)-1])
	}
}
