package preflight

import (
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Row is the word of one process of a cell, or of one edge (Cell is empty).
type Row struct {
	Cell     ids.CellID
	Instance string
	Version  int64 // of the rules that it serves; 0: none
	Keys     []string
	Library  string
	Build    ids.Build // the lowest of its mirrors; zero: one is missing, or it has none
	Faults   []string
}

// Ready: it could serve the campaign now.
func (r Row) Ready() bool { return len(r.Faults) == 0 }

// judgeCell is what a process's shadow comes to; keys are those that must be held.
func judgeCell(cell ids.CellID, instance string, version int64, keys []string, got *pb.ShadowResponse, err error) Row {
	row := Row{Cell: cell, Instance: instance}
	if err != nil {
		row.Faults = []string{"does not answer: " + err.Error()}
		return row
	}
	row.Version, row.Keys, row.Library, row.Faults = got.GetServedVersion(), got.GetKeys(), got.GetLibrary(), slices.Clone(got.GetFaults())
	if row.Version < version {
		row.Faults = append(row.Faults, fmt.Sprintf("serves version %d, the newest is %d", row.Version, version))
	}
	for _, key := range keys {
		if !slices.Contains(row.Keys, key) {
			row.Faults = append(row.Faults, "lacks the key "+key)
		}
	}
	for i, sku := range got.GetSkus() {
		build := ids.Build{Fence: sku.GetBuild().GetFenceVersion(), Count: sku.GetBuild().GetCount()}
		if i == 0 || build.Fence < row.Build.Fence || build.Fence == row.Build.Fence && build.Count < row.Build.Count {
			row.Build = build
		}
	}
	return row
}

// judgeEdge holds an edge's acknowledged revision against the campaign's.
func judgeEdge(edge string, acked int64, c core.Campaign) Row {
	row := Row{Instance: edge}
	if acked >= c.ModRevision {
		row.Version = c.Version
		return row
	}
	row.Faults = []string{fmt.Sprintf("acknowledged revision %d, version %d has revision %d", acked, c.Version, c.ModRevision)}
	return row
}
