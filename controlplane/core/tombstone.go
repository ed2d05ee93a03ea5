package core

import (
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Tombstone is what is left of a campaign that was sold, settled and deleted: its
// id is never used again, because its buyers' marks in the shards count for ever
// (I4, K30), and the archive that has its journal and reports.
type Tombstone struct {
	Campaign    ids.CampaignID
	DeletedAt   time.Time
	OperationID string // that deleted it
	Archive     []ArchiveObject
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// Check verifies a record that was read or is to be stored. ErrBroken.
func (t Tombstone) Check() error {
	if t.Campaign == "" || t.OperationID == "" || t.DeletedAt.IsZero() {
		return broken("tombstone of %q: operation %q, deleted at %s", t.Campaign, t.OperationID, t.DeletedAt)
	}
	return nil
}

// Steps of a deletion after the campaign's record has given way to its tombstone.
const (
	StepDropRecords = "records" // journal records of its books
	StepDropBooks   = "books"   // books
	StepDropRoute   = "route"   // the map of buckets
)

// Deletable is nil for what may be deleted: a draft, of which no cell was ever
// told, or a settled campaign whose archive stands. Else ErrLives with the state.
func (c Campaign) Deletable() error {
	why := ""
	switch {
	case c.State == CampaignDraft:
	case c.State != CampaignSettled:
		why = "it is not settled"
	case len(c.Archive) == 0:
		why = "its archive does not stand"
	}
	if why == "" {
		return nil
	}
	return numbered(ErrLives, "campaign_id", c.Spec.ID, "state", c.State, "why", why)
}

// Tombstone gives what is left of a campaign once it is deleted; a draft leaves
// nothing (found is false).
func (c Campaign) Tombstone(operation string, now time.Time) (t Tombstone, leaves bool) {
	if c.State == CampaignDraft {
		return Tombstone{}, false
	}
	return Tombstone{Campaign: c.Spec.ID, DeletedAt: now, OperationID: operation, Archive: c.Archive}, true
}
