package core_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// A proof that is cut joins to itself, in its order; no part is above the bound by more than one row; a missing
// part, or one of another try, is no proof.
func TestAProofSplitsAndJoins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := core.Proof{Cell: "cell-1", FenceVersion: 7, Evidence: core.EvidenceStoreFence, ShardIdentity: "1/2", Positions: []core.Position{{Topic: "t"}}}
		key := func() core.BookKey {
			return core.BookKey{Campaign: "c", SKU: ids.SKUID(strings.Repeat("s", rapid.IntRange(1, 64).Draw(t, "name")))}
		}
		for n := range rapid.IntRange(0, 40).Draw(t, "rows") {
			switch k := key(); n % 4 {
			case 0:
				p.Sealed = append(p.Sealed, core.SKUUnits{Key: k, Units: quantity.Must(int64(n))})
			case 1:
				p.Stocks = append(p.Stocks, core.StockFacts{Key: k, LastAdjustmentID: fmt.Sprint(n)})
			case 2:
				p.Adjustments = append(p.Adjustments, core.AppliedAdjustment{Key: k, ID: fmt.Sprint(n)})
			default:
				p.Settled = append(p.Settled, core.SettledAdjustments{Key: k, Count: int64(n), Digest: make([]byte, 32)})
			}
		}
		own, parts := p.Split(rapid.IntRange(1, 4000).Draw(t, "most"))
		if len(parts) != own.Parts || len(parts) == 1 {
			t.Fatalf("%d parts, the proof says %d", len(parts), own.Parts)
		}
		if own.Set = "a"; own.Parts == 0 {
			own.Set = ""
		}
		at := func(set string) func(int) (core.Proof, bool) {
			return func(n int) (core.Proof, bool) { parts[n-1].Set = set; return parts[n-1], true }
		}
		if whole, ok := own.Join(at("a")); !ok || !reflect.DeepEqual(whole, p) {
			t.Fatalf("joined to %+v, want %+v", whole, p)
		}
		if own.Parts == 0 {
			return
		}
		if _, ok := own.Join(at("b")); ok {
			t.Fatal("parts of another try were taken")
		}
		if _, ok := own.Join(func(n int) (core.Proof, bool) { return parts[0], n < own.Parts }); ok {
			t.Fatal("a part is missing")
		}
	})
}
