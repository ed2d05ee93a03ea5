package soldout

import (
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// Key names one stock of one cell.
type Key struct {
	Campaign ids.CampaignID
	SKU      ids.SKUID
	Cell     ids.CellID
}

// Sight is what an edge last saw of a stock.
type Sight uint8

// The sights.
const (
	// Nothing: no mark; it may sell.
	Nothing Sight = iota
	// Empty: stock was 0.
	Empty
	// Full: the gate let nobody in (QUEUE_FULL or THROTTLED); there may be units.
	Full
)

// mark is what was seen and until when it counts.
type mark struct {
	sight Sight
	until time.Time
}

// room bounds the marks; beyond it the least used are forgotten, which costs a question to a cell.
const room = 100_000

// Cache holds the marks. It is safe for concurrent use.
type Cache struct {
	ttl   time.Duration
	clock clock.Clock
	marks *otter.Cache[Key, mark]
	left  *otter.Cache[Key, *allowance]
}

// New returns an empty cache whose marks live for ttl.
func New(ttl time.Duration, clk clock.Clock) (*Cache, error) {
	marks, err := otter.New(&otter.Options[Key, mark]{MaximumSize: room})
	if err != nil {
		return nil, fmt.Errorf("soldout: %w", err)
	}
	left, err := otter.New(&otter.Options[Key, *allowance]{MaximumSize: room})
	if err != nil {
		return nil, fmt.Errorf("soldout: %w", err)
	}
	return &Cache{ttl: ttl, clock: clk, marks: marks, left: left}, nil
}

// Empty reports whether the stock was seen at 0 within the TTL, and how much longer that counts.
func (c *Cache) Empty(k Key) (left time.Duration, empty bool) {
	m, ok := c.live(k)
	if !ok || m.sight != Empty {
		return 0, false
	}
	return m.until.Sub(c.clock.Now()), true
}

// See is what was last seen of the stock, within the TTL.
func (c *Cache) See(k Key) Sight {
	m, ok := c.live(k)
	if !ok {
		return Nothing
	}
	return m.sight
}

func (c *Cache) live(k Key) (mark, bool) {
	m, ok := c.marks.GetIfPresent(k)
	return m, ok && c.clock.Now().Before(m.until)
}

// SawNone records a cell's answer that nothing was to be had. Only a stock of exactly 0 is Empty.
func (c *Cache) SawNone(k Key, stockLeft int32) {
	if stockLeft == 0 {
		c.set(k, Empty)
	}
}

// SawFull records that the gate of the cell let nobody in.
func (c *Cache) SawFull(k Key) { c.set(k, Full) }

// SawSome takes the mark away: the cell has just sold a unit.
func (c *Cache) SawSome(k Key) {
	if _, ok := c.marks.GetIfPresent(k); ok {
		c.marks.Invalidate(k)
	}
}

func (c *Cache) set(k Key, s Sight) {
	c.marks.Set(k, mark{sight: s, until: c.clock.Now().Add(c.ttl)})
}
