package core

import (
	"slices"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/internal/ids"
)

// Route says who owns which buckets of a campaign. Frozen at publish; only a
// handover changes it, by the verbs Order and Turn.
type Route struct {
	Campaign ids.CampaignID
	Version  int64 // from 1; grows when a handover turns the map
	Domains  []DomainRoute
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// DomainRoute is the map of one traffic domain; Domain is empty when the
// campaign is one.
type DomainRoute struct {
	Domain string
	Homes  allocator.HomeMap
	// Moves are the handovers of its buckets, oldest first; at most MaxBucketMoves.
	Moves []BucketMove
}

// Check verifies that every domain's map covers all buckets, and its moves. ErrBroken.
func (r Route) Check() error {
	if r.Campaign == "" || r.Version < 1 || len(r.Domains) == 0 {
		return broken("route of %q: version %d, %d domains", r.Campaign, r.Version, len(r.Domains))
	}
	for _, d := range r.Domains {
		if d.Homes.Buckets() != allocator.Buckets {
			return broken("route of %s: domain %q has %d buckets", r.Campaign, d.Domain, d.Homes.Buckets())
		}
		if err := r.checkMoves(d); err != nil {
			return err
		}
	}
	return nil
}

// Home gives the home cell of a user, his bucket, and whether the domain exists.
func (r Route) Home(domain string, user ids.UserID) (ids.CellID, uint16, bool) {
	bucket := ids.Bucket(user)
	for _, d := range r.Domains {
		if d.Domain == domain {
			cell, ok := d.Homes.Home(bucket)
			return ids.CellID(cell), bucket, ok
		}
	}
	return "", bucket, false
}

// Owns tells whether a cell is home to anybody.
func (r Route) Owns(cell ids.CellID) bool {
	return slices.ContainsFunc(r.Domains, func(d DomainRoute) bool { return d.Homes.Owned()[string(cell)] > 0 })
}

// NoBucket is ErrNoBucket with the names.
func NoBucket(campaign ids.CampaignID, cell ids.CellID) error {
	return numbered(ErrNoBucket, "cell_id", cell, "campaign_id", campaign)
}
