package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/internal/ids"
)

// MaxBucketMoves bounds the handovers that the route of one domain remembers. None
// is ever forgotten: each names a former cell, which is asked for what it answered.
const MaxBucketMoves = 1_000

// BucketMoveState is how far a handover is.
type BucketMoveState uint8

// The states of a move. MOVING becomes MOVED and nothing else, ever.
const (
	BucketMoving BucketMoveState = iota + 1 // the giver may have closed the buckets; the map still names it
	BucketMoved                             // the taker has opened them; the map names it
)

var bucketMoveNames = []string{"", "MOVING", "MOVED"}

// BucketMoveStates lists every state.
func BucketMoveStates() []BucketMoveState { return all[BucketMoveState](bucketMoveNames) }

// String is the word of the wire.
func (s BucketMoveState) String() string { return enumText("BucketMoveState", bucketMoveNames, s) }

// BucketMove is one handover of buckets of a traffic domain.
type BucketMove struct {
	From, To ids.CellID
	// Ranges are the buckets, ascending, each under the giver's name.
	Ranges []allocator.Range
	// RouteVersion names the handover in both shards; at least 2, no two of a route
	// have the same.
	RouteVersion int64
	State        BucketMoveState
	OrderedAt    time.Time // to the millisecond
}

// Span gives the first and the last bucket of a move. What the giver owns between
// them is exactly what moves.
func (m BucketMove) Span() (from, to uint16) {
	return m.Ranges[0].From, m.Ranges[len(m.Ranges)-1].To
}

// Buckets counts what moves.
func (m BucketMove) Buckets() (n int) {
	for _, r := range m.Ranges {
		n += r.Count()
	}
	return n
}

// Has tells whether a bucket is among those that move.
func (m BucketMove) Has(bucket uint16) bool {
	return slices.ContainsFunc(m.Ranges, func(r allocator.Range) bool { return bucket >= r.From && bucket <= r.To })
}

func (m BucketMove) touches(from, to uint16) bool {
	return slices.ContainsFunc(m.Ranges, func(r allocator.Range) bool { return r.From <= to && r.To >= from })
}

// check verifies one move by itself.
func (m BucketMove) check() error {
	switch {
	case m.From == "" || m.To == "" || m.From == m.To:
		return broken("move %d goes from %q to %q", m.RouteVersion, m.From, m.To)
	case !known(bucketMoveNames, m.State) || m.RouteVersion < 2 || m.OrderedAt.IsZero():
		return broken("move %d is %s, ordered at %s", m.RouteVersion, m.State, m.OrderedAt)
	case len(m.Ranges) == 0:
		return broken("move %d moves nothing", m.RouteVersion)
	}
	next := 0
	for _, r := range m.Ranges {
		if r.Cell != string(m.From) || int(r.From) < next || r.From > r.To || r.To >= allocator.Buckets {
			return broken("move %d has range %s", m.RouteVersion, r)
		}
		next = int(r.To) + 1
	}
	return nil
}

// checkMoves verifies a domain's moves: oldest first, none twice, and a bucket that
// moves is its giver's and moves once at a time.
func (r Route) checkMoves(d DomainRoute) error {
	if len(d.Moves) > MaxBucketMoves {
		return broken("route of %s: domain %q has %d moves, at most %d", r.Campaign, d.Domain, len(d.Moves), MaxBucketMoves)
	}
	var last int64
	for i, m := range d.Moves {
		if err := m.check(); err != nil {
			return fmt.Errorf("route of %s, domain %q: %w", r.Campaign, d.Domain, err)
		}
		if m.RouteVersion <= last || m.State == BucketMoved && m.RouteVersion > r.Version {
			return broken("route of %s at version %d: move %d of domain %q follows %d as %s", r.Campaign, r.Version, m.RouteVersion, d.Domain, last, m.State)
		}
		last = m.RouteVersion
		if m.State == BucketMoving {
			if err := d.checkMoving(r.Campaign, m, d.Moves[:i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d DomainRoute) checkMoving(campaign ids.CampaignID, m BucketMove, before []BucketMove) error {
	for _, part := range m.Ranges {
		for _, home := range d.Homes.Ranges() {
			if home.From <= part.To && home.To >= part.From && home.Cell != string(m.From) {
				return broken("route of %s: %s moves, and %s has buckets of it", campaign, part, home.Cell)
			}
		}
		for _, other := range before {
			if other.State == BucketMoving && other.touches(part.From, part.To) {
				return broken("route of %s: %s moves twice at once", campaign, part)
			}
		}
	}
	return nil
}

// Order gives the route in which the buckets of [first, last] that giver owns are
// MOVING to taker, and that move. The map is what it was. ErrNothingToMove,
// ErrMoving where some of them move already, ErrMoveLimit, ErrUnknownDomain.
func (r Route) Order(domain string, giver, taker ids.CellID, first, last uint16, at time.Time) (Route, BucketMove, error) {
	i := r.at(domain)
	if i < 0 {
		return Route{}, BucketMove{}, numbered(ErrUnknownDomain, "campaign_id", r.Campaign, "domain", domain)
	}
	d := r.Domains[i]
	_, parts, err := d.Homes.HandOver(string(giver), string(taker), first, last)
	if err != nil {
		return Route{}, BucketMove{}, fmt.Errorf("%w: %w", ErrNothingToMove, err)
	}
	for _, m := range d.Moves {
		for _, part := range parts {
			if m.State == BucketMoving && m.touches(part.From, part.To) {
				return Route{}, BucketMove{}, numbered(ErrMoving, "campaign_id", r.Campaign, "domain", domain, "to", m.To, "route_version", m.RouteVersion)
			}
		}
	}
	if len(d.Moves) >= MaxBucketMoves {
		return Route{}, BucketMove{}, numbered(ErrMoveLimit, "campaign_id", r.Campaign, "domain", domain, "limit", MaxBucketMoves)
	}
	move := BucketMove{From: giver, To: taker, Ranges: parts, RouteVersion: r.newest() + 1, State: BucketMoving, OrderedAt: at.UTC().Truncate(time.Millisecond)}
	d.Moves = append(slices.Clone(d.Moves), move)
	next := r.with(i, d)
	return next, move, next.Check()
}

// Turn gives the route after the taker opened the buckets of a move: the map names
// it, and the version has grown. A move that is MOVED already changes nothing.
// ErrUnknownMove.
func (r Route) Turn(version int64) (Route, error) {
	i, at := r.find(version)
	if i < 0 {
		return Route{}, numbered(ErrUnknownMove, "campaign_id", r.Campaign, "route_version", version)
	}
	d := r.Domains[i]
	d.Moves = slices.Clone(d.Moves)
	move := &d.Moves[at]
	if move.State == BucketMoved {
		return r, nil
	}
	move.State = BucketMoved
	for _, part := range move.Ranges {
		homes, _, err := d.Homes.HandOver(string(move.From), string(move.To), part.From, part.To)
		if err != nil {
			return Route{}, broken("route of %s: move %d: %v", r.Campaign, version, err)
		}
		d.Homes = homes
	}
	next := r.with(i, d)
	next.Version = max(r.Version+1, version)
	return next, next.Check()
}

// Above gives the route in which no later handover gets a version that shards have
// seen, whatever etcd lost: newest is the highest that moved a bucket in any of them.
// false: it is above already.
func (r Route) Above(newest int64) (Route, bool) {
	if r.newest() >= newest {
		return r, false
	}
	r.Version = newest
	return r, true
}

// Move gives the move of a route version with its domain.
func (r Route) Move(version int64) (domain string, m BucketMove, ok bool) {
	i, at := r.find(version)
	if i < 0 {
		return "", BucketMove{}, false
	}
	return r.Domains[i].Domain, r.Domains[i].Moves[at], true
}

// Moved gives the newest route version under which the shard of a cell closed or
// opened buckets, as the map tells; 0: none.
func (r Route) Moved(cell ids.CellID) (newest int64) {
	for _, d := range r.Domains {
		for _, m := range d.Moves {
			if m.State == BucketMoved && (m.From == cell || m.To == cell) {
				newest = max(newest, m.RouteVersion)
			}
		}
	}
	return newest
}

// Moving tells whether a cell gives or takes buckets now.
func (r Route) Moving(cell ids.CellID) bool {
	return slices.ContainsFunc(r.Domains, func(d DomainRoute) bool {
		return slices.ContainsFunc(d.Moves, func(m BucketMove) bool {
			return m.State == BucketMoving && (m.From == cell || m.To == cell)
		})
	})
}

// newest is the highest version that the route or one of its moves has.
func (r Route) newest() int64 {
	newest := r.Version
	for _, d := range r.Domains {
		for _, m := range d.Moves {
			newest = max(newest, m.RouteVersion)
		}
	}
	return newest
}

func (r Route) at(domain string) int {
	return slices.IndexFunc(r.Domains, func(d DomainRoute) bool { return d.Domain == domain })
}

func (r Route) find(version int64) (domain, move int) {
	for i, d := range r.Domains {
		if at := slices.IndexFunc(d.Moves, func(m BucketMove) bool { return m.RouteVersion == version }); at >= 0 {
			return i, at
		}
	}
	return -1, -1
}

// with is a copy of the route with another domain at a place.
func (r Route) with(i int, d DomainRoute) Route {
	r.Domains = slices.Clone(r.Domains)
	r.Domains[i] = d
	return r
}
