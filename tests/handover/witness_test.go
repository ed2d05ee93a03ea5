package handover_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// shows is what a shard says of itself.
func (c *cell) shows() fencing.Witness {
	c.t.Helper()
	w, err := c.Witness(c.ctx)
	c.must(err)
	return w
}

// decided is what the control plane's records prove of a cell's shard.
func (w *world) decided(id ids.CellID) fencing.Witness {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	head, err := w.store.Head(ctx)
	if err == nil {
		_, err = w.view.WaitFor(ctx, head)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	cell, _ := w.view.Snapshot().Cell(id)
	return link.Decided(w.view.Snapshot(), cell)
}

// I4: no process of the giver has to report its closing, nor the taker's its opening: a standby without
// it is behind what was seen as soon as the operation knows, and none is that has it.
func TestAClosingIsAWitnessBeforeAnybodyReportsIt(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	w.sell()
	a, b := w.cells["cell-a"], w.cells["cell-b"]
	before := map[ids.CellID]fencing.Witness{"cell-a": a.shows(), "cell-b": b.shows()}
	w.ask(request("h", "cell-a", "cell-b", 0, 1023))
	lost := func(step string, want ...ids.CellID) {
		t.Helper()
		for id, cell := range w.cells {
			seen := w.decided(id)
			why, shows := seen.Lacks(before[id]), seen.Lacks(cell.shows())
			if slices.Contains(want, id) != strings.Contains(why, "route version") || shows != "" {
				t.Errorf("%s: a copy of %s from before lacks %q, itself %q", step, id, why, shows)
			}
		}
	}
	lost("asked")
	for seen := 0; ; { // a driver that dies after each step that it has stored
		if !w.live("h", 2, true) {
			t.Fatal("it ended")
		}
		w.lead()
		if op := w.operation("h"); op.DoneStep(core.StepOpen) {
			lost("opened", "cell-a", "cell-b")
			break
		} else if op.DoneStep(core.StepClose) {
			lost("closed", "cell-a")
		}
		if seen++; seen > 20 {
			t.Fatal("it does not get on")
		}
	}
	w.done("h")
	lost("turned", "cell-a", "cell-b")
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign(campaign)
		c.State, c.Version = core.CampaignSettled, c.Version+1
		if err == nil {
			err = tx.PutCampaign(c)
		}
		return err
	})
	lost("settled") // its rows may be deleted
}

// etcd was restored with the route from before a handover. The next one of that range gets the same route
// version, and the shard refuses it: what it closed, it closed for another.
func TestAHandoverAfterAnEarlierOneWasLost(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	w.sell()
	before := w.route()
	w.ask(request("h", "cell-a", "cell-b", 0, 1023))
	w.done("h")
	w.update(func(tx *store.Tx) error {
		_, _, err := tx.Route(campaign)
		return errors.Join(err, tx.PutRoute(before))
	})
	w.ask(request("h2", "cell-a", "cell-b", 0, 1023))
	if op := w.step("h2"); op.Step != core.StepClose || op.State != core.OperationRunning || !strings.Contains(op.Detail, "for h to cell-b, not for h2 to cell-b") {
		t.Errorf("%s %s %q", op.State, op.Step, op.Detail)
	}
}
