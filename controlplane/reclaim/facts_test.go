package reclaim

import (
	"reflect"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/fencing"
)

// The conversions are by number: the names must be the same ones.
func TestWordsOfCoreAndFencingAgree(t *testing.T) {
	for _, s := range core.CellStates() {
		if got := fencing.CellState(s).String(); got != s.String() {
			t.Errorf("cell state %s is %s in fencing", s, got)
		}
	}
	for _, o := range core.Outcomes() {
		if got := fencing.Outcome(o).String(); got != o.String() {
			t.Errorf("outcome %s is %s in fencing", o, got)
		}
	}
	for _, s := range core.JournalStates() {
		if got := fencing.JournalState(s).String(); got != s.String() {
			t.Errorf("journal state %s is %s in fencing", s, got)
		}
	}
	for from, to := range kinds {
		if from.String() != to.String() {
			t.Errorf("kind %s is %s in fencing", from, to)
		}
	}
	for _, k := range []core.AdjustmentKind{core.KindGrant, core.KindReturn} { // as proofs name them, by number
		if fencing.AdjustmentKind(k) != kinds[k] {
			t.Errorf("kind %s is %s in a proof", k, fencing.AdjustmentKind(k))
		}
	}
}

func TestProofGoesThereAndBack(t *testing.T) {
	sku := fencing.SKU{Campaign: "c", SKU: "s"}
	p := fencing.Proof{
		Cell: "cell-1", Version: 4, Identity: "7/1",
		SKUs:      []fencing.SKUFacts{{SKU: sku, SealID: "seal", Sealed: 5, Granted: 3, Reserved: 1, Confirmed: 2}, {SKU: fencing.SKU{Campaign: "c", SKU: "t"}}},
		Applied:   []fencing.Applied{{ID: "a", SKU: sku, Version: 3, Number: 1, Kind: fencing.KindReturn, Units: 2, Outcome: fencing.OutcomeApplied}},
		Positions: []fencing.Position{{Topic: "t", TopicID: "i", Partition: 1, NextOffset: 9, LeaderEpoch: 2}},
	}
	stored, err := storedProof(p, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if back := provenBy(stored); !reflect.DeepEqual(back, p) {
		t.Fatalf("%+v\nis not\n%+v", back, p)
	}
	if got := SealID("cell-1", 4, core.BookKey{Campaign: "c", SKU: "s"}); got != "seal.cell-1.4.c.s" { // as fence_cell in the shard's migration names it
		t.Fatal(got)
	}
}
