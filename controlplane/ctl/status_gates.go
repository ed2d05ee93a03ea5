package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of asking for gates: cells asked at once, and what one may take of the page's time.
const (
	gatesAtOnce = 8
	gatesTime   = 5 * time.Second
)

// cellGates is what one cell says of its gates.
type cellGates struct {
	cell string
	out  *pb.CellAdminServiceGetGateResponse
	err  error
}

// askGates asks every cell that has processes, side by side. A cell that does not answer is named and
// holds nobody up.
func askGates(ctx context.Context, cp *client.Client, cells []*pb.Cell) []cellGates {
	var all []cellGates
	for _, c := range cells {
		if len(c.GetInstances()) > 0 {
			all = append(all, cellGates{cell: c.GetSpec().GetCellId()})
		}
	}
	var asked errgroup.Group
	asked.SetLimit(gatesAtOnce)
	for i := range all {
		asked.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, gatesTime)
			defer cancel()
			all[i].out, all[i].err = cp.Cells.GetGate(ctx, &pb.CellAdminServiceGetGateRequest{CellId: all[i].cell})
			return nil
		})
	}
	_ = asked.Wait() // what failed is in the list
	return all
}

// gateGroup is the processes of a cell whose gates of one SKU are in one state.
type gateGroup struct {
	cell, campaign, sku string
	state               pb.GateState
}

// gateSum is what a group's processes say; they look at one mirror, so the largest is the newest.
type gateSum struct {
	processes                  int
	outstanding, bound, oldest int64
	cause                      string
}

// gateTable shows the gates of all cells, and names whoever did not answer.
func gateTable(all []cellGates) (render.Table, []string) {
	sums, lines := map[gateGroup]gateSum{}, []string(nil)
	for _, c := range all {
		if c.err != nil {
			lines = append(lines, fmt.Sprintf("gates         %s did not answer: %v", c.cell, c.err))
			continue
		}
		for _, p := range c.out.GetProcesses() {
			for _, g := range p.GetGates() {
				at := gateGroup{c.cell, g.GetCampaignId(), g.GetSkuId(), g.GetState()}
				s := sums[at]
				sums[at] = gateSum{
					s.processes + 1, max(s.outstanding, g.GetOutstanding()), max(s.bound, g.GetBound()),
					max(s.oldest, g.GetOldestUnsettledAgeMs()), cmp.Or(s.cause, g.GetCause()),
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(c.out.GetUnreachable())) {
			lines = append(lines, fmt.Sprintf("gates         %s of %s did not answer: %s", name, c.cell, c.out.GetUnreachable()[name]))
		}
	}
	t := render.Table{Title: "GATES", Columns: render.Columns("CELL", "CAMPAIGN", "SKU", "STATE", "#PROCESSES", "#OUTSTANDING", "#BOUND", "#OLDEST", "CAUSE")}
	for _, at := range slices.SortedFunc(maps.Keys(sums), gateGroup.compare) {
		s := sums[at]
		t.Rows = append(t.Rows, []string{
			at.cell, at.campaign, at.sku, render.Word(at.state), number(int64(s.processes)), number(s.outstanding), number(s.bound), millis(s.oldest), s.cause,
		})
	}
	return t, lines
}

func (g gateGroup) compare(o gateGroup) int {
	return cmp.Or(cmp.Compare(g.cell, o.cell), cmp.Compare(g.campaign, o.campaign), cmp.Compare(g.sku, o.sku), cmp.Compare(g.state, o.state))
}
