package celltest

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// SKU is the SKU of a Route.
const SKU = "phone-x"

// Route is a published campaign of one SKU over the cells, each owning an equal range of buckets. It
// opened an hour before now and closes an hour after; permits live for five minutes.
func Route(id string, now time.Time, cells ...string) *cq.CampaignRoute {
	return &cq.CampaignRoute{
		Spec: &cq.CampaignSpec{
			CampaignId: id, DisplayJson: `{"title":"Double Eleven"}`,
			OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			Mode: cq.CampaignMode_CAMPAIGN_MODE_DIRECT, MaxQuantityPerOrder: 5,
			Permits: &cq.PermitRules{Ttl: durationpb.New(5 * time.Minute)},
			Gate:    &cq.GateRules{MarginPermille: 500},
			Skus:    []*cq.SkuSpec{{SkuId: SKU}},
			Cells:   cells,
		},
		Version: 3, State: cq.CampaignState_CAMPAIGN_STATE_PUBLISHED, RouteVersion: 1,
		Domains:       []*cq.DomainRoute{Domain("", cells...)},
		PublishedAtMs: now.Add(-2 * time.Hour).UnixMilli(),
	}
}

// Domain deals the buckets of a domain to the cells in equal, contiguous ranges.
func Domain(name string, cells ...string) *cq.DomainRoute {
	d := &cq.DomainRoute{Domain: name}
	for i, cell := range cells {
		d.Cells = append(d.Cells, &cq.CellBuckets{CellId: cell, Buckets: &cq.DomainBuckets{Domain: name, Ranges: []*cq.BucketRange{{
			BucketFrom: int32(i * ids.Buckets / len(cells)), BucketTo: int32((i+1)*ids.Buckets/len(cells) - 1),
		}}}})
	}
	return d
}

// Route is the cell as the control plane sends it.
func (c *Cell) Route(state cq.CellState) *cq.CellRoute {
	return &cq.CellRoute{CellId: string(c.ID), Region: "east", State: state, Addresses: []string{c.Addr}}
}

// Homed are n users, named after prefix, whose bucket belongs to the i-th of so many cells.
func Homed(prefix string, n, i, of int) []string {
	var out []string
	for try := 0; len(out) < n; try++ {
		user := prefix + "-" + strconv.Itoa(try)
		bucket := int(ids.Bucket(ids.UserID(user)))
		if bucket >= i*ids.Buckets/of && bucket < (i+1)*ids.Buckets/of {
			out = append(out, user)
		}
	}
	return out
}
