package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
		slices.SortFunc(out.Cells, func(a, b *pb.CellBuckets) int { return strings.Compare(a.CellId, b.CellId) })
		return out
	})
}

func bucketRange(r allocator.Range) *pb.BucketRange {
	return &pb.BucketRange{BucketFrom: int32(r.From), BucketTo: int32(r.To)}
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

// FromDomains reads a campaign's maps; each must cover every bucket once.
func FromDomains(domains []*pb.DomainRoute) ([]core.DomainRoute, error) {
	var out []core.DomainRoute
	for i, d := range domains {
		var ranges []allocator.Range
		for _, c := range d.GetCells() {
			for _, r := range c.GetBuckets().GetRanges() {
				if r.GetBucketFrom() < 0 || r.GetBucketTo() < 0 || r.GetBucketFrom() > math.MaxUint16 || r.GetBucketTo() > math.MaxUint16 {
					return nil, fmt.Errorf("domains[%d]: range %d-%d is outside the bucket space", i, r.GetBucketFrom(), r.GetBucketTo())
				}
				ranges = append(ranges, allocator.Range{From: uint16(r.GetBucketFrom()), To: uint16(r.GetBucketTo()), Cell: c.GetCellId()})
			}
		}
		homes, err := allocator.NewHomeMap(allocator.Buckets, ranges)
		if err != nil {
			return nil, fmt.Errorf("domains[%d]: %w", i, err)
		}
		out = append(out, core.DomainRoute{Domain: d.GetDomain(), Homes: homes})
	}
	return out, nil
}
