package route

import "github.com/cellquota/cellquota/internal/ids"

// Standing is what a cell can do for customers, as the control plane sees it.
type Standing uint8

// The standings.
const (
	// Unknown: not in the snapshot.
	Unknown Standing = iota
	// Selling: ACTIVE, SUSPECT (it keeps selling what it holds) or DRAINING (it answers for
	// itself, replays included).
	Selling
	// Settling: FENCING, FENCED, RESTORING or REGRESSED. It admits nobody; whatever process of it
	// answers is asked about orders and payments, and decides by its shard's fence.
	Settling
	// Gone: PROVISIONED or RETIRED; it never had, or no longer has, anything to answer.
	Gone
)

// Cell is what an edge knows of one cell. It is immutable.
type Cell struct {
	ID        ids.CellID
	Region    string
	Standing  Standing
	Paused    bool     // by an operator: first attempts are PAUSED; repeats, status, orders and payments go on
	Addresses []string // gRPC, of its live processes; empty: nobody to ask
}

// Admits reports whether a request may be sent to the cell: anything but Selling, or a cell that
// nobody answers for, is HOME_CELL_UNAVAILABLE. A nil cell does not admit.
func (c *Cell) Admits() bool {
	return c != nil && c.Standing == Selling && len(c.Addresses) > 0
}

// Takes reports whether a first attempt may be sent to the cell: it admits and is not paused.
func (c *Cell) Takes() bool { return c.Admits() && !c.Paused }

// Answers reports whether the cell can be asked about what it has: status, orders, payments. A nil
// cell does not answer.
func (c *Cell) Answers() bool {
	return c != nil && c.Standing != Gone && len(c.Addresses) > 0
}

// Lost reports whether nobody will ever answer for what the cell had: it is not known any more, or was
// retired, which a written-off cell ends as. Asked whether it has something, it has said no.
func (c *Cell) Lost() bool { return c == nil || c.Standing == Gone }
