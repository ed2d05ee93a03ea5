package campaignreport

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// Accounts takes a campaign's accounts with their Totals; undersell.Reader implements it.
type Accounts interface {
	Read(ctx context.Context, id ids.CampaignID) (undersell.Result, error)
}

// Reader gives a campaign's report. Safe for concurrent use.
type Reader struct {
	Accounts Accounts        // with Totals
	Archive  archive.Archive // nil: this replica has none
	Clock    clock.Clock
}

// Read gives the archived report of a campaign whose account was taken, with the object
// that it stands in, and else the report of this moment with an empty object.
// undersell.ErrMoving, core.ErrUnknownCampaign, the archive's errors.
func (r Reader) Read(ctx context.Context, campaign core.Campaign) (Report, core.ArchiveObject, error) {
	object, taken := campaign.Report()
	if !taken {
		result, err := r.Accounts.Read(ctx, campaign.Spec.ID)
		if err != nil {
			return Report{}, core.ArchiveObject{}, err
		}
		report, err := Make(result, r.Clock.Now())
		return report, core.ArchiveObject{}, err
	}
	if r.Archive == nil {
		return Report{}, core.ArchiveObject{}, fmt.Errorf("%w: this replica has no archive_dir", archive.ErrUnavailable)
	}
	content, err := r.Archive.Get(ctx, object)
	if err != nil {
		return Report{}, core.ArchiveObject{}, err
	}
	report, err := Decode(object, content)
	return report, object, err
}
