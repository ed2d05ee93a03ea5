package admission

import (
	"testing"

	"github.com/cellquota/cellquota/internal/testkit"
)

// The shard has refused or voided a return, and this mirror was told before the debit came: one of a
// process that slept between its two steps. The debit takes nothing, or its units would be promised to
// nobody until the next rebuild.
func TestADebitThatComesAfterItsCreditTakesNothing(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	r := Return{Scope: skuScope, SKU: testSKU, AdjustmentID: "r1", Number: 7, Units: 4}
	if got, err := m.CreditReturn(ctx, r); err != nil || got.Change != NotHeld {
		t.Fatalf("%s %v", got.Change, err)
	}
	if got, err := m.DebitReturn(ctx, r); err != nil || got.Change != Already {
		t.Errorf("the late debit: %s %v", got.Change, err)
	}
	if s := m.stock(t, skuScope, testSKU); s != 10 {
		t.Errorf("stock %d, want 10", s)
	}
}
