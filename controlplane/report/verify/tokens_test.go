package verify_test

import (
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/verify"
)

// TestTokenRowsAreCompared: in TOKEN mode the rows are the counters: FREE available, BOUND reserved, SOLD
// confirmed, SEALED what the ledger says has left; and each reservation holds as many as it has units.
func TestTokenRowsAreCompared(t *testing.T) {
	for _, c := range []struct {
		name  string
		i     verify.Invariant // empty: nothing is broken
		wreck string
		words []string
	}{
		{"a sound sale", "", "SELECT 1", nil},
		{"a free row that is gone", verify.I2, "DELETE FROM cellquota.tokens WHERE token_id = (SELECT min(token_id) FROM cellquota.tokens WHERE state = 'FREE')", []string{"cell-1", "30 FREE token rows, available 31"}},
		{"sold in the rows and not in the counters", verify.I2, "UPDATE cellquota.tokens SET state = 'SOLD' WHERE reservation_id = 'r-a3-s'", []string{"2 BOUND, reserved 3", "3 SOLD, confirmed 2"}},
		{"a reservation without its row", verify.I2, "UPDATE cellquota.tokens SET reservation_id = 'r-a4-s' WHERE reservation_id = 'r-a3-s'", []string{"reservation r-a3-s of 1 units is RESERVED and holds 0 BOUND"}},
		{"a closed order that keeps its row", verify.I2, "UPDATE cellquota.tokens SET reservation_id = 'r-a5-s' WHERE reservation_id = 'r-a3-s'", []string{"reservation r-a5-s of 1 units is RELEASED and holds 1 BOUND"}},
		{"sealed without an entry", verify.I5, "UPDATE cellquota.tokens SET state = 'SEALED' WHERE token_id = (SELECT min(token_id) FROM cellquota.tokens WHERE state = 'FREE')", []string{"5 SEALED token rows", "4 units have left"}},
		{"no rows at all", verify.I2, "DELETE FROM cellquota.tokens", []string{"cell-1", "0 FREE token rows, available 31"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOf(t, core.InventoryToken)
			w.shards["cell-1"].do("SELECT sale.adjust(1, 's', 'back', 2, 'RETURN', 4, 'r')")
			w.cut.Books[0] = shift(w.cut.Books[0], 4)
			w.shards["cell-1"].unguarded(c.wreck)
			r := w.verify()
			if c.i == "" {
				if !r.Holds() {
					t.Fatalf("%+v", r.Breaches)
				}
				return
			}
			for _, word := range c.words {
				if !names(r, c.i, word) {
					t.Errorf("nothing says %q: %+v", word, r.Breaches)
				}
			}
		})
	}
}
