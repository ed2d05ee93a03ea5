package core

import (
	"slices"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// Step is the place an adjustment takes in the sequence of its (cell, SKU).
type Step struct {
	FenceVersion int64
	Number       int64 // from 1; 0 for moves that have none
}

// NewBook opens the book of one SKU with the first grant of every cell, each
// under number 1 of its cell's fence version. A plan that grants a cell nothing
// gives it an allocation of 0 and no number. cells are the records of exactly
// the plan's cells; each must be ACTIVE and reclaimed.
func NewBook(key BookKey, plan allocator.Plan, cells map[ids.CellID]Cell) (Book, []Step, error) {
	if err := plan.Check(); err != nil {
		return Book{}, nil, err
	}
	b := Book{Key: key, SaleLimit: plan.Limit, Reserve: plan.Limit}
	steps := make([]Step, 0, len(plan.Grants))
	for _, g := range plan.Grants {
		cell, ok := cells[ids.CellID(g.Cell)]
		if !ok {
			return Book{}, nil, numbered(ErrUnknownCell, "cell_id", g.Cell)
		}
		step := Step{FenceVersion: cell.FenceVersion}
		var err error
		if g.Units.IsZero() {
			b, err = b.Rebase(cell)
		} else {
			b, step, err = b.Grant(cell, g.Units)
		}
		if err != nil {
			return Book{}, nil, err
		}
		at, _ := b.find(cell.Spec.ID)
		b.Allocations[at].FirstGrant = g.Units
		steps = append(steps, step)
	}
	return b, steps, b.Check()
}

// Grant moves units from the reserve to a cell and takes the cell's next
// number. ErrFinal, ErrLowering (the reserve is spoken for), ErrCellState (only an
// ACTIVE cell is granted units), ErrNotReclaimed, ErrStaleCell, ErrReserveShort.
func (b Book) Grant(cell Cell, units quantity.Quantity) (Book, Step, error) {
	if err := positive(units); err != nil {
		return Book{}, Step{}, err
	}
	if b.Final {
		return Book{}, Step{}, numbered(ErrFinal, "campaign_id", b.Key.Campaign, "sku_id", b.Key.SKU)
	}
	if err := b.MayBegin(); err != nil {
		return Book{}, Step{}, err
	}
	if !b.LimitTarget.IsZero() {
		return Book{}, Step{}, Lowering(b)
	}
	if err := cell.mayBeGranted(); err != nil {
		return Book{}, Step{}, err
	}
	return b.give(cell, units)
}

// Cover moves units from the reserve to a cell whose shard is being recovered, where it holds less than
// what the book says it gave away since: a grant that is applied already. ErrCellState unless the cell is
// RESTORING, ErrReserveShort.
func (b Book) Cover(cell Cell, units quantity.Quantity) (Book, Step, error) {
	if cell.State != CellRestoring {
		return Book{}, Step{}, cell.refuses("cover")
	}
	if err := positive(units); err != nil {
		return Book{}, Step{}, err
	}
	return b.give(cell, units)
}

// give moves units from the reserve to a cell under the cell's next number.
func (b Book) give(cell Cell, units quantity.Quantity) (Book, Step, error) {
	reserve, err := b.Reserve.Sub(units)
	if err != nil {
		return Book{}, Step{}, numbered(ErrReserveShort, "reserve", b.Reserve, "units", units)
	}
	next, a, err := b.touch(cell)
	if err != nil {
		return Book{}, Step{}, err
	}
	if a.Granted, err = a.Granted.Add(units); err != nil {
		return Book{}, Step{}, err
	}
	next.Reserve = reserve
	a.LastNumber++
	return finish(next, Step{FenceVersion: a.FenceVersion, Number: a.LastNumber})
}

// ProposeReturn takes the number of a return; no unit moves before the shard
// has applied it. ErrFinal (a final book has no reserve to return to),
// ErrCellState, ErrStaleCell, ErrAllocationShort.
func (b Book) ProposeReturn(cell Cell, units quantity.Quantity) (Book, Step, error) {
	if err := positive(units); err != nil {
		return Book{}, Step{}, err
	}
	if err := b.MayBegin(); err != nil {
		return Book{}, Step{}, err
	}
	if b.Final {
		return Book{}, Step{}, numbered(ErrFinal, "campaign_id", b.Key.Campaign, "sku_id", b.Key.SKU)
	}
	if cell.State != CellActive && cell.State != CellDraining {
		return Book{}, Step{}, cell.refuses("return")
	}
	next, a, err := b.touch(cell)
	if err != nil {
		return Book{}, Step{}, err
	}
	if a.Granted.Cmp(units) < 0 {
		return Book{}, Step{}, numbered(ErrAllocationShort, "cell_id", a.Cell, "granted", a.Granted, "units", units)
	}
	a.LastNumber++
	return finish(next, Step{FenceVersion: a.FenceVersion, Number: a.LastNumber})
}

// BookReturn moves units that a shard gave back, whatever fence version it did
// so under. ErrUnknownCell, ErrAllocationShort.
func (b Book) BookReturn(cell ids.CellID, units quantity.Quantity) (Book, error) {
	return b.giveBack(cell, units)
}

// VoidGrant takes back a grant that the cell's shard will never apply, named by
// its id in the record. The cell must be fenced with proof, or the shard must
// have said VOIDED or REFUSED: the caller holds that evidence.
func (b Book) VoidGrant(cell ids.CellID, units quantity.Quantity) (Book, error) {
	return b.giveBack(cell, units)
}

// SealBack moves units that a fence took out of the shard. The caller holds the
// proof that names them.
func (b Book) SealBack(cell ids.CellID, units quantity.Quantity) (Book, error) {
	return b.giveBack(cell, units)
}

// giveBack moves units of a cell's allocation to the reserve. It touches no
// number: these moves follow what a shard did.
func (b Book) giveBack(cell ids.CellID, units quantity.Quantity) (Book, error) {
	at, found := b.find(cell)
	if !found {
		return Book{}, numbered(ErrUnknownCell, "cell_id", cell)
	}
	next := b.clone()
	a := &next.Allocations[at]
	free, err := a.Granted.Sub(a.WrittenOff)
	if err != nil {
		return Book{}, broken("%s: cell %s: %v", b.Key, cell, err)
	}
	if free.Cmp(units) < 0 {
		return Book{}, numbered(ErrAllocationShort, "cell_id", cell, "granted", a.Granted, "written_off", a.WrittenOff, "units", units)
	}
	if a.Granted, err = a.Granted.Sub(units); err != nil {
		return Book{}, err
	}
	if next.Reserve, err = next.Reserve.Add(units); err != nil {
		return Book{}, err
	}
	return next, next.Check()
}

// WriteOff marks the whole allocation of a lost cell. The units stay where they
// are: they may have been sold.
func (b Book) WriteOff(cell ids.CellID) (Book, error) {
	at, found := b.find(cell)
	if !found {
		return Book{}, numbered(ErrUnknownCell, "cell_id", cell)
	}
	next := b.clone()
	next.Allocations[at].WrittenOff = next.Allocations[at].Granted
	return next, next.Check()
}

// Rebase records the cell's present fence version, state and record version
// without moving a unit; a higher fence version starts the numbers again.
// ErrStaleCell where the book has seen a higher one.
func (b Book) Rebase(cell Cell) (Book, error) {
	next, _, err := b.touch(cell)
	if err != nil {
		return Book{}, err
	}
	return next, next.Check()
}

// touch gives a copy and the cell's allocation inside it, made if there was
// none, brought to the cell's present fence version.
func (b Book) touch(cell Cell) (Book, *Allocation, error) {
	next := b.clone()
	at, found := next.find(cell.Spec.ID)
	if !found {
		next.Allocations = slices.Insert(next.Allocations, at, Allocation{Cell: cell.Spec.ID, FenceVersion: cell.FenceVersion})
	}
	a := &next.Allocations[at]
	switch {
	case cell.FenceVersion < a.FenceVersion:
		return Book{}, nil, numbered(ErrStaleCell, "cell_id", a.Cell, "fence_version", cell.FenceVersion, "book_fence_version", a.FenceVersion)
	case cell.FenceVersion > a.FenceVersion:
		a.FenceVersion, a.LastNumber = cell.FenceVersion, 0
	}
	a.CellVersion, a.State = cell.Version, cell.State
	return next, a, nil
}

func finish(b Book, s Step) (Book, Step, error) {
	if err := b.Check(); err != nil {
		return Book{}, Step{}, err
	}
	return b, s, nil
}

func positive(units quantity.Quantity) error { return atLeastOne("units", units) }

func atLeastOne(field string, units quantity.Quantity) error {
	if units.IsZero() {
		return invalid(field, "must be from 1 to 1000000000")
	}
	return nil
}
