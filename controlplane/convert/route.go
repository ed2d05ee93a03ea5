package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Domains gives a campaign's maps for the wire, per domain and cell.
func Domains(domains []core.DomainRoute) []*pb.DomainRoute {
	return mapped(domains, func(d core.DomainRoute) *pb.DomainRoute {
		out := &pb.DomainRoute{Domain: d.Domain}
		owned := map[string]*pb.DomainBuckets{}
		for _, r := range d.Homes.Ranges() {
			buckets, has := owned[r.Cell]
			if !has {
				buckets = &pb.DomainBuckets{Domain: d.Domain}
				owned[r.Cell] = buckets
				out.Cells = append(out.Cells, &pb.CellBuckets{CellId: r.Cell, Buckets: buckets})
			}
			buckets.Ranges = append(buckets.Ranges, bucketRange(r))
		}
		out.Moves = mapped(d.Moves, func(m core.BucketMove) *pb.BucketMove { return bucketMove(d.Domain, m) })
		slices.SortFunc(out.Cells, func(a, b *pb.CellBuckets) int { return strings.Compare(a.CellId, b.CellId) })
		return out
	})
}

func bucketRange(r allocator.Range) *pb.BucketRange {
	return &pb.BucketRange{BucketFrom: int32(r.From), BucketTo: int32(r.To)}
}

func bucketMove(domain string, m core.BucketMove) *pb.BucketMove {
	return &pb.BucketMove{
		FromCell: string(m.From), ToCell: string(m.To), Buckets: Buckets(domain, m.Ranges),
		RouteVersion: m.RouteVersion, State: pb.BucketMoveState(m.State), OrderedAtMs: m.OrderedAt.UnixMilli(),
	}
}

// Buckets gives ranges of one domain for the wire.
func Buckets(domain string, ranges []allocator.Range) *pb.DomainBuckets {
	return &pb.DomainBuckets{Domain: domain, Ranges: mapped(ranges, bucketRange)}
}

// CellDomains gives what one cell owns, per domain; a domain it owns nothing of
// is absent.
func CellDomains(domains []core.DomainRoute, cell ids.CellID) []*pb.DomainBuckets {
	var out []*pb.DomainBuckets
	for _, d := range domains {
		var owned []*pb.BucketRange
		for _, r := range d.Homes.Ranges() {
			if r.Cell == string(cell) {
				owned = append(owned, bucketRange(r))
			}
		}
		if len(owned) > 0 {
			out = append(out, &pb.DomainBuckets{Domain: d.Domain, Ranges: owned})
		}
	}
	return out
}

// FromDomains reads a campaign's maps and moves; each map must cover every bucket
// once. What moves may be is asked by core's Check.
func FromDomains(domains []*pb.DomainRoute) ([]core.DomainRoute, error) {
	var out []core.DomainRoute
	for i, d := range domains {
		var ranges []allocator.Range
		for _, c := range d.GetCells() {
			own, err := FromRanges(c.GetCellId(), c.GetBuckets().GetRanges())
			if err != nil {
				return nil, fmt.Errorf("domains[%d]: %w", i, err)
			}
			ranges = append(ranges, own...)
		}
		homes, err := allocator.NewHomeMap(allocator.Buckets, ranges)
		if err != nil {
			return nil, fmt.Errorf("domains[%d]: %w", i, err)
		}
		moves, err := fromMoves(d.GetMoves())
		if err != nil {
			return nil, fmt.Errorf("domains[%d]: %w", i, err)
		}
		out = append(out, core.DomainRoute{Domain: d.GetDomain(), Homes: homes, Moves: moves})
	}
	return out, nil
}

func fromMoves(moves []*pb.BucketMove) ([]core.BucketMove, error) {
	var out []core.BucketMove
	for i, m := range moves {
		ranges, err := FromRanges(m.GetFromCell(), m.GetBuckets().GetRanges())
		if err != nil {
			return nil, fmt.Errorf("moves[%d]: %w", i, err)
		}
		out = append(out, core.BucketMove{
			From: ids.CellID(m.GetFromCell()), To: ids.CellID(m.GetToCell()), Ranges: ranges, RouteVersion: m.GetRouteVersion(),
			State: enum[core.BucketMoveState](m.GetState()), OrderedAt: time.UnixMilli(m.GetOrderedAtMs()).UTC(),
		})
	}
	return out, nil
}

// FromRanges reads ranges of one cell; each must lie in the bucket space.
func FromRanges(cell string, ranges []*pb.BucketRange) ([]allocator.Range, error) {
	var out []allocator.Range
	for _, r := range ranges {
		if r.GetBucketFrom() < 0 || r.GetBucketTo() < 0 || r.GetBucketFrom() > math.MaxUint16 || r.GetBucketTo() > math.MaxUint16 {
			return nil, fmt.Errorf("range %d-%d is outside the bucket space", r.GetBucketFrom(), r.GetBucketTo())
		}
		out = append(out, allocator.Range{From: uint16(r.GetBucketFrom()), To: uint16(r.GetBucketTo()), Cell: cell})
	}
	return out, nil
}
