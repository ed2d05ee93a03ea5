package view_test

import (
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// leaseTTL is the default life of a lease; the rule is twice that.
const leaseTTL = 5 * time.Second

// K40: whichever member of etcd a replica's watch hangs on is cut off from it without
// a word; a cell is fenced through the others; the view knows within twice the TTL.
func TestAMemberThatSaysNothingDoesNotHideAFence(t *testing.T) {
	etcd := testkit.Etcd(t, 3)
	open := func(addrs []string) *store.Store {
		t.Helper()
		s, err := store.Open(store.Config{Endpoints: addrs, Prefix: "/cellquota", Timeout: 3 * time.Second}, store.Deps{Clock: clock.System()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	direct := open(etcd.Endpoints())
	var wires []*fault.Proxy
	var addrs []string
	for _, endpoint := range etcd.Endpoints() {
		w := fault.New(t, endpoint)
		wires, addrs = append(wires, w), append(addrs, w.Addr())
	}
	ctx := testkit.Deadline(t)
	for i, wire := range wires { // a view of its own each time: one member at a time is the promise
		v, err := view.New(open(addrs), view.Deps{Clock: clock.System()})
		if err != nil {
			t.Fatal(err)
		}
		run(t, v)
		if _, err := v.WaitFor(ctx, putCell(t, direct, 1, core.CellActive, int64(2*i+1))); err != nil {
			t.Fatal(err)
		}
		wire.Silence(fault.BothWays) // one of the three has the watch
		from := time.Now()
		revision := putCell(t, direct, 1, core.CellFencing, int64(2*i+2))
		snap, err := v.WaitFor(ctx, revision)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(from)
		t.Logf("member %d cut off: known after %s", i, took)
		if took > 2*leaseTTL {
			t.Errorf("member %d cut off: known after %s, want within %s", i, took, 2*leaseTTL)
		}
		if cell, _ := snap.Cell("cell-1"); cell.State != core.CellFencing {
			t.Errorf("the cell is %s", cell.State)
		}
		wire.Heal()
	}
}
