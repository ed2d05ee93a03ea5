package allocator

import (
	"bytes"
	"container/heap"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// Bounds of a lottery.
const (
	// SeedBytes is the length of a seed.
	SeedBytes = 32
	// MaxTickets is the most tickets that a tier gives one entrant.
	MaxTickets = 100
	// MaxBeaconBytes bounds the public value that is mixed in.
	MaxBeaconBytes = 256
	// MaxDrawn is the most units of a draw: so many winners are held in memory.
	MaxDrawn = 1_000_000
)

// Entrant is one entry of a lottery for one SKU: one user, one unit.
type Entrant struct {
	// ID is the entry's id, unique over all cells.
	ID string
	// Cell is the entrant's home cell, which will be granted his unit.
	Cell string
	// Tickets is how many lots are in the drum for him, by his tier: 1 to MaxTickets.
	Tickets int
}

func (e Entrant) check() error {
	switch {
	case e.ID == "":
		return invalid("entries[].id", ErrEntryUnnamed, "")
	case e.Cell == "":
		return invalid("entries["+e.ID+"].cell", ErrCellUnnamed, "")
	case e.Tickets < 1 || e.Tickets > MaxTickets:
		return invalid("entries["+e.ID+"].tickets", ErrTickets, "%d", e.Tickets)
	}
	return nil
}

// Commitment is what is published of a seed before the first entry: its SHA-256.
func Commitment(seed [SeedBytes]byte) [sha256.Size]byte { return sha256.Sum256(seed[:]) }

// EntrantList takes the digest of everybody who entered, so that a draw can be
// held against the list it was made from. Entries are added in ascending order
// of their ids, compared byte by byte; the digest depends on nothing else. It
// keeps one id, however long the list.
type EntrantList struct {
	hash  hash.Hash
	last  string
	count int64
}

// NewEntrantList begins an empty list.
func NewEntrantList() *EntrantList { return &EntrantList{hash: sha256.New()} }

// Add takes the next entrant. Errors are *Error: an entry out of order or named
// twice (ErrEntryOrder), unnamed, without a cell, or with tickets out of bounds.
func (l *EntrantList) Add(e Entrant) error {
	if err := e.check(); err != nil {
		return err
	}
	if l.count > 0 && e.ID <= l.last {
		return invalid("entries["+e.ID+"].id", ErrEntryOrder, "%q after %q", e.ID, l.last)
	}
	l.hash.Write(framed(e.ID, e.Cell, fmt.Sprint(e.Tickets)))
	l.last, l.count = e.ID, l.count+1
	return nil
}

// Count is how many entered.
func (l *EntrantList) Count() int64 { return l.count }

// Digest is the SHA-256 over the length-framed entries so far.
func (l *EntrantList) Digest() [sha256.Size]byte { return [sha256.Size]byte(l.hash.Sum(nil)) }

// LotteryRules are what decides a draw, all of it public after it.
type LotteryRules struct {
	Campaign, SKU string
	// Seed was chosen, and its Commitment published, before the first entry.
	Seed [SeedBytes]byte
	// Entrants is the EntrantList's digest.
	Entrants [sha256.Size]byte
	// Beacon is a public value that nobody knew when entry ended, or empty; at
	// most MaxBeaconBytes.
	Beacon string
	// Units is how many win.
	Units int64
}

// Winner is a drawn entrant.
type Winner struct {
	Entrant
	// Lot is the smallest of his tickets: winners are in ascending order of it.
	Lot [sha256.Size]byte
}

// Draw is a lottery while its entrants are read; it holds at most Units of them.
//
// A ticket of an entrant is an HMAC-SHA256 of the entry's id and the ticket's
// number under a key made of the rules, so it is known to nobody before the seed
// is opened and to everybody after. His lot is the smallest of his tickets; the
// Units smallest lots win. Of independent uniform tickets that is the same as
// drawing one ticket after the other and taking a winner's others out of the
// drum: a chance in proportion to tickets, without arithmetic that rounds. It
// does not depend on the order in which entrants come.
type Draw struct {
	key   []byte
	units int
	best  lots
}

// NewDraw begins a draw. Errors are *Error: units below 1 or above
// 1,000,000 (ErrUnitsToDraw), a beacon too long.
func NewDraw(rules LotteryRules) (*Draw, error) {
	if rules.Units < 1 || rules.Units > MaxDrawn {
		return nil, invalid("units", ErrUnitsToDraw, "%d", rules.Units)
	}
	if len(rules.Beacon) > MaxBeaconBytes {
		return nil, invalid("beacon", ErrBeacon, "%d bytes", len(rules.Beacon))
	}
	key := sha256.Sum256(framed("cellquota lottery 1", rules.Campaign, rules.SKU, string(rules.Seed[:]), string(rules.Entrants[:]), rules.Beacon))
	return &Draw{key: key[:], units: int(rules.Units)}, nil
}

// Add takes one entrant. An entry that comes twice would have two lots: whoever
// draws adds the same stream to an EntrantList, which refuses it. Errors are
// *Error, as of EntrantList.Add.
func (d *Draw) Add(e Entrant) error {
	if err := e.check(); err != nil {
		return err
	}
	w := Winner{Entrant: e, Lot: d.lot(e)}
	if len(d.best) < d.units {
		heap.Push(&d.best, w)
	} else if later(d.best[0], w) {
		d.best[0] = w
		heap.Fix(&d.best, 0)
	}
	return nil
}

// Winners are the drawn so far, best lot first: all entrants when they are fewer
// than the units.
func (d *Draw) Winners() []Winner {
	won := slices.Clone(d.best)
	slices.SortFunc(won, func(a, b Winner) int {
		if later(a, b) {
			return 1
		}
		return -1
	})
	return won
}

// lot is the smallest ticket of an entrant.
func (d *Draw) lot(e Entrant) [sha256.Size]byte {
	mac := hmac.New(sha256.New, d.key)
	var least [sha256.Size]byte
	for n := range e.Tickets {
		mac.Reset()
		mac.Write(framed(e.ID, fmt.Sprint(n)))
		ticket := [sha256.Size]byte(mac.Sum(nil))
		if n == 0 || bytes.Compare(ticket[:], least[:]) < 0 {
			least = ticket
		}
	}
	return least
}

// later tells whether a's lot is drawn after b's; equal lots go by id.
func later(a, b Winner) bool {
	if c := bytes.Compare(a.Lot[:], b.Lot[:]); c != 0 {
		return c > 0
	}
	return strings.Compare(a.ID, b.ID) > 0
}

// lots is a heap with the latest lot on top.
type lots []Winner

func (l lots) Len() int           { return len(l) }
func (l lots) Less(i, j int) bool { return later(l[i], l[j]) }
func (l lots) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lots) Push(x any)        { *l = append(*l, x.(Winner)) }
func (l *lots) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}

// framed joins parts, each behind its length, so that no two lists of parts give
// the same bytes.
func framed(parts ...string) []byte {
	var out []byte
	for _, p := range parts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(p)))
		out = append(out, p...)
	}
	return out
}
