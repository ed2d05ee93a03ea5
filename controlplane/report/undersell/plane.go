package undersell

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// Fresh is the Plane of a replica: its view, once it has reached what etcd holds at
// the moment of the call.
type Fresh struct {
	Store *store.Store
	View  *view.View
}

// Campaign implements Plane. core.ErrUnknownCampaign, core.ErrStoreUnavailable.
func (f Fresh) Campaign(ctx context.Context, id ids.CampaignID) (Side, error) {
	head, err := f.Store.Head(ctx)
	if err != nil {
		return Side{}, err
	}
	s, err := f.View.WaitFor(ctx, head)
	if err != nil {
		return Side{}, err
	}
	campaign, known := s.Campaign(id)
	if !known {
		return Side{}, fmt.Errorf("%w: %s", core.ErrUnknownCampaign, id)
	}
	out := Side{Campaign: campaign, Books: s.Books(id), Cells: s.Cells(), Open: map[core.BookKey]bool{}}
	for _, r := range s.OpenRecords() {
		if r.Key.Campaign == id {
			out.Open[r.Key] = true
		}
	}
	return out, nil
}
