package planner_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// An order to rebuild mirrors waits for the cell's process, is told until it is answered, and ends with
// the cell's word.
func TestACellIsToldToRebuildItsMirrors(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	r.lead()
	r.link("cell-1")
	r.link("cell-2")
	r.draft("c", 2, "s")
	r.publish("c", "p1")
	r.until("p1", core.OperationDone)
	r.cells.disconnect("cell-1")
	asks := func(id string) {
		t.Helper()
		op, err := r.intent.RebuildMirror(testkit.Deadline(t), who, intent.CellChange{Cell: "cell-1", OperationID: id, Reason: "looks wrong"}, "c", "s")
		if err != nil || op.Subject != "cell-1/c/s" || op.AboutCell() != "cell-1" {
			t.Fatalf("%+v, %v", op, err)
		}
	}
	asks("m1")
	testkit.Eventually(t, wait, func() error {
		if op, _ := r.view.Snapshot().Operation("m1"); !strings.Contains(op.Detail, "no process of cell cell-1") {
			return fmt.Errorf("%s at %q: %s", op.State, op.Step, op.Detail)
		}
		return nil
	})
	r.cells.set("cell-1", func(s *shard) { s.deaf = true })
	r.link("cell-1")
	told := func(id string, times int) {
		t.Helper()
		testkit.Eventually(t, wait, func() (err error) {
			r.cells.read("cell-1", func(s *shard) {
				if n := strings.Count(strings.Join(s.log, " ")+" ", "mirror/"+id+" "); n < times {
					err = fmt.Errorf("told %d times", n)
				}
			})
			return err
		})
	}
	told("m1", 1)
	r.cells.set("cell-1", func(s *shard) { s.deaf = false })
	r.link("cell-1") // the answer was lost with the stream
	r.until("m1", core.OperationDone)
	told("m1", 2)

	r.cells.set("cell-1", func(s *shard) { s.refuse = "no mirror of it here" })
	asks("m2")
	if op := r.until("m2", core.OperationFailed); !strings.Contains(op.Detail, "no mirror of it here") {
		t.Errorf("%+v", op)
	}
	for _, c := range []struct {
		cell ids.CellID
		key  core.BookKey
		want error
	}{
		{"cell-9", core.BookKey{Campaign: "c"}, core.ErrUnknownCell},
		{"cell-1", core.BookKey{Campaign: "other"}, core.ErrUnknownCampaign},
		{"cell-1", core.BookKey{Campaign: "c", SKU: "other"}, core.ErrUnknownSKU},
	} {
		if _, err := r.intent.RebuildMirror(testkit.Deadline(t), who, intent.CellChange{Cell: c.cell, OperationID: "m3", Reason: "x"}, c.key.Campaign, c.key.SKU); !errors.Is(err, c.want) {
			t.Errorf("%s of %s: %v, want %v", c.key, c.cell, err, c.want)
		}
	}
}
