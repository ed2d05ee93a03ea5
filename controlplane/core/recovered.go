package core

import (
	"cmp"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// Recover gives the book as the shards hold it: the confirmed limit, each given
// allocation with the units, fence version and number that its shard reported, and
// the rest in the reserve. A written-off allocation stays; one of a cell that is
// not given stays too, for the caller has read every shard that counts. A lowering
// under way ends: the limit was confirmed. ErrReserveShort names the floor when the
// limit is below what is held; ErrFinal when units would come back into a book that
// was declared sold out.
func (b Book) Recover(key BookKey, limit quantity.Quantity, held []Allocation) (Book, error) {
	next := b.clone()
	next.Key, next.SaleLimit, next.LimitTarget = key, limit, quantity.Quantity{}
	for _, h := range held {
		at, found := next.find(h.Cell)
		switch {
		case found && !next.Allocations[at].WrittenOff.IsZero():
			continue
		case found:
			h.FirstGrant = next.Allocations[at].FirstGrant
			next.Allocations[at] = h
		default:
			h.FirstGrant = h.Granted
			next.Allocations = slices.Insert(next.Allocations, at, h)
		}
	}
	slices.SortFunc(next.Allocations, func(a, c Allocation) int { return cmp.Compare(a.Cell, c.Cell) })
	rest := limit.Int64() - next.Allocated()
	if rest < 0 {
		return Book{}, numbered(ErrReserveShort, "campaign_id", key.Campaign, "sku_id", key.SKU, "sale_limit", limit, "floor", next.Allocated())
	}
	reserve, err := quantity.New(rest)
	if err != nil {
		return Book{}, broken("%s: %v", key, err)
	}
	if next.Reserve = reserve; next.Final && rest > 0 {
		return Book{}, numbered(ErrFinal, "campaign_id", key.Campaign, "sku_id", key.SKU, "sale_limit", limit, "floor", next.Allocated())
	}
	return next, next.Check()
}

// Recovered ends an open adjustment as its shard ended it; 0: no shard has it, and
// none will take it any more, because every shard was told a newer term.
func (a Adjustment) Recovered(decided Outcome) Adjustment {
	if !a.Open() {
		return a
	}
	switch {
	case decided == OutcomeApplied, decided == OutcomeRefused && a.Kind == KindReturn:
		a.State, a.Outcome = StateDone, decided
	case decided == OutcomeRefused:
		a.State, a.Outcome = StateVoided, decided
	default:
		a.State, a.Outcome = StateVoided, OutcomeVoided
	}
	return a
}
