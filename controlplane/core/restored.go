package core

import (
	"fmt"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// Restored is the standing record that etcd lost its past. While it is there no
// book changes and no directive is sent, whoever leads: a word in one leader's
// memory would end with that leader, and the next one would grant. Only the
// operation recover-store takes it away.
type Restored struct {
	Why     string     // what showed it, in words
	Cell    ids.CellID // whose shard or hello showed it; empty: etcd itself
	At      time.Time
	FoundBy string // address of the replica
	// TermCount is the highest term that was reported with it; 0: none.
	TermCount int64
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// Check verifies a record that was read or is to be stored. ErrBroken.
func (r Restored) Check() error {
	if r.Why == "" {
		return broken("a loss of etcd's past without a reason")
	}
	return nil
}

// Refuses is ErrRestored with the reason and what to do.
func (r Restored) Refuses() error {
	return numbered(ErrRestored, "why", r.Why, "cell_id", r.Cell, "next", "cellctl recover store --dry-run")
}

// String is the record on one line, for people.
func (r Restored) String() string {
	return fmt.Sprintf("%s (found %s by %s); nothing is granted until an operator confirms the limits: cellctl recover store --dry-run",
		r.Why, r.At.UTC().Format(time.RFC3339), r.FoundBy)
}

// ConfirmedLimit is an operator's word on how many units of a SKU may be sold.
type ConfirmedLimit struct {
	Key       BookKey
	SaleLimit quantity.Quantity
}
