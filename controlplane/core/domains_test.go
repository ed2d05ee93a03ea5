package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// With HOME_REGION each region that has cells of the campaign is a domain of its own,
// with all its buckets among its cells; with USER there is one.
func TestDomains(t *testing.T) {
	s := demoSpec()
	cells := map[ids.CellID]core.Cell{}
	for i, id := range s.Cells {
		region := "west"
		if i == 0 {
			region = "east"
		}
		cells[id] = core.Cell{Spec: core.CellSpec{ID: id, Region: region, Weight: 1}}
	}
	domains, err := s.Deal(cells)
	if err != nil || len(domains) != 1 || domains[0].Domain != "" || core.Owned(domains)[string(s.Cells[0])] != allocator.Buckets/len(s.Cells) {
		t.Fatalf("USER: %+v, %v", domains, err)
	}
	s.Routing = core.RoutingHomeRegion
	domains, err = s.Deal(cells)
	if err != nil || len(domains) != 2 || domains[0].Domain != "east" || domains[1].Domain != "west" {
		t.Fatalf("HOME_REGION: %+v, %v", domains, err)
	}
	route := core.Route{Campaign: "c", Version: 1, Domains: domains}
	if err := route.Check(); err != nil {
		t.Fatal(err)
	}
	for _, user := range []ids.UserID{"alice", "bob", "carol"} {
		if home, _, ok := route.Home("east", user); !ok || home != s.Cells[0] {
			t.Errorf("%s of the east is at home in %q", user, home)
		}
		if home, _, ok := route.Home("west", user); !ok || home == s.Cells[0] {
			t.Errorf("%s of the west is at home in %q", user, home)
		}
		if _, _, ok := route.Home("mars", user); ok {
			t.Errorf("%s of a region without a cell has a home", user)
		}
		if _, _, ok := route.Home("", user); ok {
			t.Errorf("%s without a region has a home", user)
		}
	}
	// Shares are compared within a region: the east's one cell has all its buckets, and a quarter of the units.
	split, err := s.Preview(cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range split.Warnings {
		t.Errorf("warned of %s", w)
	}
	// A region whose cells nobody may call their home is refused before anything is cut.
	s.SKUs = s.SKUs[:1]
	s.SKUs[0].Split = core.SplitRules{Policy: allocator.Weighted, Weights: map[ids.CellID]uint32{}}
	for _, id := range s.Cells[1:] {
		s.SKUs[0].Split.Weights[id] = 1
	}
	_, err = s.Deal(cells)
	if v := rpcstatus.Violations(err); !errors.Is(err, rpcstatus.ErrInvalidArgument) || len(v) != 1 || v[0].Field != "routing" || !strings.Contains(v[0].Rule, "region east") {
		t.Errorf("a region without a home: %v", err)
	}
}
