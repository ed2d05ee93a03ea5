package route

import (
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/internal/ids"
)

// Move is one handover of buckets from a cell to another (architecture §5).
type Move struct {
	From, To ids.CellID
	Buckets  []Range
	Done     bool // the taker sells; until then the giver is home and sells nobody's first attempt
}

// Range is the buckets First to Last, both inclusive.
type Range struct{ First, Last int32 }

// holds reports whether the move is about the bucket.
func (m *Move) holds(bucket int32) bool {
	return slices.ContainsFunc(m.Buckets, func(r Range) bool { return r.First <= bucket && bucket <= r.Last })
}

// WithMoves records the handovers of d's buckets, oldest first. Call it once, before anyone else sees
// d. A range that is no range of buckets is ErrBuckets.
func (d *Domain) WithMoves(moves []Move) error {
	for i := range moves {
		for _, r := range moves[i].Buckets {
			if r.First < 0 || r.Last >= ids.Buckets || r.First > r.Last {
				return fmt.Errorf("%w: handover of buckets %d to %d from %s to %s is not within 0 and %d", ErrBuckets, r.First, r.Last, moves[i].From, moves[i].To, ids.Buckets-1)
			}
			for b := r.First; b <= r.Last && !moves[i].Done; b++ {
				d.moving[b/64] |= 1 << (b % 64)
			}
		}
	}
	d.moves = moves
	return nil
}

// Moving reports whether the user's bucket is on its way to another cell: its giver may have closed it,
// its taker has not opened it, so nobody may sell to the user now.
func (c *Campaign) Moving(domain string, user ids.UserID) bool {
	d, ok := c.domains[domain]
	if !ok {
		return false
	}
	b := ids.Bucket(user)
	return d.moving[b/64]&(1<<(b%64)) != 0
}

// Elsewhere are the cells beside his home that may have something of the user: those that gave his
// bucket away, the latest first, and the one that is about to take it, which another edge may know as
// his home already. Each is there once.
func (c *Campaign) Elsewhere(domain string, user ids.UserID) []ids.CellID {
	d, ok := c.domains[domain]
	if !ok || len(d.moves) == 0 {
		return nil
	}
	bucket := int32(ids.Bucket(user))
	home := d.cells[d.owners[bucket]]
	var out []ids.CellID
	for i := len(d.moves) - 1; i >= 0; i-- {
		if !d.moves[i].holds(bucket) {
			continue
		}
		for _, cell := range [...]ids.CellID{d.moves[i].From, d.moves[i].To} {
			if cell != home && !slices.Contains(out, cell) {
				out = append(out, cell)
			}
		}
	}
	return out
}
