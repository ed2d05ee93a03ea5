// Package books reads the control plane's side of a verification: every book,
// cell, campaign and physical stock at one etcd revision, linearizably.
//
// Job: verify.Plane over controlplane/store. Promise: nothing is left out in
// silence; a record that cannot be read, or breaks its own law, is in
// Cut.Unreadable, where a broken book is a breach of I1. Neighbours: store lists,
// report/verify judges.
package books

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// Plane implements verify.Plane.
type Plane struct{ Store *store.Store }

// Cut reads everything at one revision; a campaign narrows books, campaigns and
// open adjustments to its own.
func (p Plane) Cut(ctx context.Context, campaign ids.CampaignID) (verify.Cut, error) {
	cut := verify.Cut{Open: map[core.BookKey]bool{}, Deleted: map[ids.CampaignID]bool{}, Unreadable: map[string]error{}}
	revision, err := p.Store.Survey(ctx, func(entries []store.Entry) error {
		for _, e := range entries {
			if e.Err != nil {
				cut.Unreadable[e.Kind.String()+": "+e.Key] = e.Err
				continue
			}
			add(&cut, e.Value, campaign)
		}
		return nil
	})
	cut.Revision = revision
	return cut, err
}

func add(cut *verify.Cut, value any, campaign ids.CampaignID) {
	of := func(id ids.CampaignID) bool { return campaign == "" || id == campaign }
	switch v := value.(type) {
	case core.Book:
		if of(v.Key.Campaign) {
			cut.Books = append(cut.Books, v)
		}
	case core.Campaign:
		if of(v.Spec.ID) {
			cut.Campaigns = append(cut.Campaigns, v)
		}
	case core.Tombstone:
		cut.Deleted[v.Campaign] = true
	case core.Cell:
		cut.Cells = append(cut.Cells, v)
	case core.PhysicalStock:
		cut.Physical = append(cut.Physical, v)
	case core.Record:
		if v.Open() && of(v.Key.Campaign) {
			cut.Open[v.Key] = true
		}
	}
}
