package allocator

import "github.com/cellquota/cellquota/allocator/quantity"

// CellWeight is a cell and its relative weight; weight 0 takes nothing.
type CellWeight struct {
	Cell   string
	Weight uint32
}

// Redistribute hands units that a fence proved unsold to live cells, by their
// weights, largest remainder (`cell fence --reclaim --top-up`). The caller lists
// only cells that may be granted units of the campaign. The plan's limit is
// units and its reserve 0: everything is handed out.
//
// Errors are those of Split under WEIGHTED: with no cell listed (ErrNoCells) or
// no weight (ErrNoWeight) the units stay in the reserve.
func Redistribute(units quantity.Quantity, live []CellWeight) (Plan, error) {
	cells := make([]Share, len(live))
	for i, c := range live {
		cells[i] = Share{Cell: c.Cell, Weight: c.Weight}
	}
	return Split(Request{Limit: units, Policy: Weighted, Cells: cells})
}
