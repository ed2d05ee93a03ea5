package demo

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// plane is etcd as the witness reads it: everything at one revision, linearizably.
type plane struct{ store *store.Store }

// Cut implements verify.Plane.
func (p plane) Cut(ctx context.Context, campaign ids.CampaignID) (verify.Cut, error) {
	cut := verify.Cut{Open: map[core.BookKey]bool{}}
	revision, err := p.store.List(ctx, func(entries []store.Entry) error {
		for _, e := range entries {
			if e.Err != nil {
				return fmt.Errorf("%s: %w", e.Key, e.Err)
			}
			add(&cut, e.Value, campaign)
		}
		return nil
	})
	cut.Revision = revision
	return cut, err
}

// add sorts one record into the cut; what the invariants do not need is left out.
func add(cut *verify.Cut, value any, campaign ids.CampaignID) {
	switch v := value.(type) {
	case core.Book:
		if campaign == "" || v.Key.Campaign == campaign {
			cut.Books = append(cut.Books, v)
		}
	case core.Cell:
		cut.Cells = append(cut.Cells, v)
	case core.Campaign:
		if campaign == "" || v.Spec.ID == campaign {
			cut.Campaigns = append(cut.Campaigns, v)
		}
	case core.PhysicalStock:
		cut.Physical = append(cut.Physical, v)
	case core.Record:
		if v.Open() {
			cut.Open[v.Key] = true
		}
	}
}
