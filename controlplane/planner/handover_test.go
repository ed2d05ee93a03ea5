package planner_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A cell that joined in mid sale has no units while it is home to nobody; they follow
// once buckets were handed over to it, also while another handover is open.
func TestUnitsFollowTheBuckets(t *testing.T) {
	r := newRig(t)
	r.provision(3)
	r.lead()
	for _, id := range []ids.CellID{"cell-1", "cell-2", "cell-3"} {
		r.link(id)
	}
	r.draftAs("c", 2, autoTopUp, "s")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		r.tell(id, sold(0, 1)) // nothing is low there
	}
	r.tell("cell-3", soldOut) // of nothing
	move := func(change func(route core.Route) (core.Route, error)) {
		t.Helper()
		revision, err := r.store.Update(testkit.Deadline(t), "move", func(tx *store.Tx) error {
			route, _, err := tx.Route("c")
			if err != nil {
				return err
			}
			next, err := change(route)
			return errors.Join(err, tx.PutRoute(next))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.view.WaitFor(testkit.Deadline(t), revision); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.store.Update(testkit.Deadline(t), "add", func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		c.Spec.Cells, c.Version = append(c.Spec.Cells, "cell-3"), c.Version+1
		_, _, e := tx.Operation("h")
		return errors.Join(err, e, tx.PutCampaign(c), tx.PutOperation(core.Operation{
			ID: "h", Kind: core.OperationHandOver, Subject: "c", State: core.OperationRunning, Actor: "ann", StartedAt: tx.Now(),
			Handover: core.Handover{From: "cell-2", To: "cell-1", First: 4000, Last: 4095},
		}))
	}); err != nil {
		t.Fatal(err)
	}
	move(func(route core.Route) (core.Route, error) {
		next, _, err := route.Order("", "cell-1", "cell-3", 0, 1023, time.Now())
		return next, err
	})
	if a, allocated := r.book().Allocation("cell-3"); allocated && !a.Granted.IsZero() {
		t.Fatalf("a cell that is home to nobody yet was granted %s", a.Granted)
	}
	move(func(route core.Route) (core.Route, error) { return route.Turn(2) })
	testkit.Eventually(t, wait, func() error {
		a, allocated := r.book().Allocation("cell-3")
		if !allocated || a.Granted.IsZero() {
			return fmt.Errorf("cell-3 has nothing: %+v", r.book().Allocations)
		}
		return nil
	})
}
