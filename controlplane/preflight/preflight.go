package preflight

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of one preflight.
const (
	askTime = 3 * time.Second // one process
	atOnce  = 32              // processes asked at the same time
)

// Processes reaches one process of a cell.
type Processes interface {
	// Shadow asks the process at an address; it returns before ctx ends.
	Shadow(ctx context.Context, address string, campaign ids.CampaignID) (*pb.ShadowResponse, error)
}

// Edges gives the connected edges with the revision each acknowledged.
type Edges interface{ Edges() map[string]int64 }

// Preflight asks everybody.
type Preflight struct {
	Processes Processes
	Edges     Edges
}

// Run gives a row per live process of the campaign's cells, in the order of the
// campaign, and one per edge; a cell without a live process has a row of its own.
func (p Preflight) Run(ctx context.Context, s view.Snapshot, c core.Campaign) []Row {
	type target struct {
		cell ids.CellID
		in   core.Instance
	}
	var targets []target
	for _, id := range c.Spec.Cells {
		live := s.Instances(id)
		if cell, known := s.Cell(id); known {
			live = slices.DeleteFunc(live, func(in core.Instance) bool { return in.Group != cell.InstanceGroup })
		}
		for _, in := range live {
			targets = append(targets, target{id, in})
		}
		if len(live) == 0 {
			targets = append(targets, target{cell: id})
		}
	}
	keys, rows := active(s.Keys()), make([]Row, len(targets))
	var asks errgroup.Group
	asks.SetLimit(atOnce)
	for i, t := range targets {
		if t.in.ID == "" {
			rows[i] = Row{Cell: t.cell, Faults: []string{"no process of the cell holds a lease"}}
			continue
		}
		asks.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			got, err := p.Processes.Shadow(ctx, t.in.Address, c.Spec.ID)
			rows[i] = judgeCell(t.cell, t.in.ID, c.Version, keys, got, err)
			return nil
		})
	}
	_ = asks.Wait() // none fails: silence is a fault of its row
	edges := p.Edges.Edges()
	for _, id := range slices.Sorted(maps.Keys(edges)) {
		rows = append(rows, judgeEdge(id, edges[id], c))
	}
	return rows
}

// active names the keys that every process must hold: of permits and receipts, by
// which cells judge.
func active(keys []core.Key) (out []string) {
	for _, k := range keys {
		if k.State == core.KeyActive && (k.Use == "permit" || k.Use == "receipt") {
			out = append(out, k.Use+"/"+k.KID)
		}
	}
	return out
}
