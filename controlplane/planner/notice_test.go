package planner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A limit change is told to one shard of the book, and to another when that one refuses or is gone; it is
// acknowledged when one has recorded it, not before.
func TestALimitChangeIsRecordedByOneShard(t *testing.T) {
	r := newRig(t)
	r.lead()
	r.provision(2)
	r.draft("c", 2, "s")
	r.link("cell-1")
	r.link("cell-2")
	r.publish("c", "publish")
	r.until("publish", core.OperationDone)
	key := core.BookKey{Campaign: "c", SKU: "s"}
	r.cells.set("cell-1", func(s *shard) { s.refuse = "its rules come first" })
	if _, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, intent.SetLimit{OperationID: "l1", Key: key, Limit: quantity.Must(11_000), Reason: "more came"}, false); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, wait, func() error { // told, again and again
		var n int
		r.cells.read("cell-1", func(s *shard) {
			for _, id := range s.log {
				if id == "notice/l1" {
					n++
				}
			}
		})
		if n < 2 {
			return fmt.Errorf("told %d times", n)
		}
		return nil
	})
	if record, _ := r.view.Snapshot().Record("l1"); !record.Open() {
		t.Fatalf("a refusal acknowledged it: %+v", record)
	}
	r.cells.disconnect("cell-1")
	if a := r.settled("l1"); a.State != core.StateDone || a.Outcome != core.OutcomeApplied || a.Units.Int64() != 11_000 {
		t.Errorf("%+v", a)
	}
	r.cells.read("cell-2", func(s *shard) {
		if !slices.Contains(s.recorded, "l1") {
			t.Errorf("cell-2 recorded %v", s.recorded)
		}
	})
}
