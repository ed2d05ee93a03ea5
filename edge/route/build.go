package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cellquota/cellquota/internal/ids"
)

// ErrBuckets refuses a map of buckets that is not one: a hole, an overlap or a range outside
// 0…4095. An edge that routed by it would send customers to two homes or to none.
var ErrBuckets = errors.New("bucket map")

// unowned marks a bucket nobody was given yet.
const unowned = ^uint16(0)

// Owned is one cell's part of a domain: From and To are buckets, both inclusive.
type Owned struct {
	Cell     ids.CellID
	From, To int32
}

// NewDomain builds the map of one domain. The ranges must cover every bucket exactly once; anything
// else is ErrBuckets, naming the first bucket that is wrong.
func NewDomain(ranges []Owned) (*Domain, error) {
	d := &Domain{}
	for i := range d.owners {
		d.owners[i] = unowned
	}
	index := map[ids.CellID]uint16{}
	for _, r := range ranges {
		if r.From < 0 || r.To >= ids.Buckets || r.From > r.To {
			return nil, fmt.Errorf("%w: range %d to %d of cell %s is not within 0 and %d", ErrBuckets, r.From, r.To, r.Cell, ids.Buckets-1)
		}
		at, ok := index[r.Cell]
		if !ok {
			at = uint16(len(d.cells))
			index[r.Cell] = at
			d.cells = append(d.cells, r.Cell)
		}
		for b := r.From; b <= r.To; b++ {
			if d.owners[b] != unowned {
				return nil, fmt.Errorf("%w: bucket %d is owned twice, by %s and %s", ErrBuckets, b, d.cells[d.owners[b]], r.Cell)
			}
			d.owners[b] = at
		}
	}
	if hole := slices.Index(d.owners[:], unowned); hole >= 0 {
		return nil, fmt.Errorf("%w: bucket %d is owned by nobody", ErrBuckets, hole)
	}
	return d, nil
}

// Seal indexes c's SKUs and domains. Call it once, before anyone else sees c.
func (c *Campaign) Seal(domains map[string]*Domain) {
	c.domains = maps.Clone(domains)
	c.bySKU = make(map[ids.SKUID]int, len(c.SKUs))
	for i, s := range c.SKUs {
		c.bySKU[s.ID] = i
	}
	seen := map[ids.CellID]struct{}{}
	for _, d := range c.domains {
		for _, cell := range d.cells {
			seen[cell] = struct{}{}
		}
	}
	c.cells = slices.Sorted(maps.Keys(seen))
}
