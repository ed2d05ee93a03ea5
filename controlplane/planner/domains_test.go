package planner_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// With HOME_REGION a publish deals all buckets of each region among its cells, tells every cell its own
// by domain, and the table stays although a cell's region changes afterwards.
func TestDomainsFreezeAtPublish(t *testing.T) {
	r := newRig(t)
	r.provision(3)
	r.lead()
	move := func(to string) {
		t.Helper()
		_, err := r.store.Update(testkit.Deadline(t), "move", func(tx *store.Tx) error {
			cell, _, err := tx.Cell("cell-3")
			cell.Spec.Region = to
			cell.Version++
			return errors.Join(err, tx.PutCell(cell))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	move("west")
	r.link("cell-1")
	r.link("cell-2")
	r.link("cell-3")
	r.draft("c", 3, "s")
	_, err := r.store.Update(testkit.Deadline(t), "by region", func(tx *store.Tx) error {
		campaign, _, err := tx.Campaign("c")
		campaign.Spec.Routing = core.RoutingHomeRegion
		return errors.Join(err, tx.PutCampaign(campaign))
	})
	if err != nil {
		t.Fatal(err)
	}
	r.publish("c", "p1")
	r.until("p1", core.OperationDone)
	move("north")
	route, known := r.view.Snapshot().Route("c")
	if !known || len(route.Domains) != 2 || route.Domains[0].Domain != "east" || route.Domains[1].Domain != "west" {
		t.Fatalf("%+v", route)
	}
	if owned := core.Owned(route.Domains); owned["cell-1"]+owned["cell-2"] != allocator.Buckets || owned["cell-3"] != allocator.Buckets {
		t.Errorf("%v", owned)
	}
	for cell, domain := range map[ids.CellID]string{"cell-1": "east", "cell-3": "west"} {
		r.cells.read(cell, func(s *shard) {
			if told := s.rules["c"].GetBuckets(); len(told) != 1 || told[0].GetDomain() != domain {
				t.Errorf("%s was told %v", cell, told)
			}
		})
	}
}
