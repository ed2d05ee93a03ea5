package planner

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// Shard is what a cell's shard said of itself.
type Shard struct {
	Cell         ids.CellID
	FenceVersion int64
	Stocks       []core.StockFacts
}

// Books is what a shard is compared with; a view's snapshot implements it.
type Books interface {
	Cell(ids.CellID) (core.Cell, bool)
	Book(core.BookKey) (core.Book, bool)
	Record(id string) (core.Record, bool)
	RecordOf(adjustmentID string) (core.Record, bool)
	Tombstone(ids.CampaignID) (core.Tombstone, bool)
	Campaign(ids.CampaignID) (core.Campaign, bool)
}

// sealPrefix begins the ids of the adjustments that the fence function itself
// makes in a shard; they are not in the journal.
const sealPrefix = "seal."

// ErrOlderFacts: the books moved after the shard was read, by a return that was
// booked or a fence that was reclaimed. It says nothing about etcd's past: the
// shard has to be read again.
var ErrOlderFacts = errors.New("the facts are older than the books")

// Compare is nil when everything that the shard knows is known to the books. It
// compares identities, not only counters: after etcd was restored from a backup,
// counters soon look right again. A shard that knows less is no fault: grants are
// on their way. core.ErrRestored names the first thing that the books lack;
// ErrOlderFacts says that only figures differ, and why they may.
func Compare(shard Shard, books Books) error {
	lacks := func(format string, args ...any) error {
		return fmt.Errorf("%w: cell %s: %s", core.ErrRestored, shard.Cell, fmt.Sprintf(format, args...))
	}
	cell, known := books.Cell(shard.Cell)
	if !known {
		return lacks("the cell is unknown")
	}
	if shard.FenceVersion > cell.FenceVersion {
		return lacks("the shard has fence version %d, the record %d", shard.FenceVersion, cell.FenceVersion)
	}
	var older error
	for _, s := range shard.Stocks {
		if _, deleted := books.Tombstone(s.Key.Campaign); deleted {
			continue // settled: its books are gone, the shard's rows stay
		}
		if c, known := books.Campaign(s.Key.Campaign); known && c.State == core.CampaignSettled {
			continue // its journal is in the archive; nothing is granted any more
		}
		if why := compareStock(s, cell, books); why != "" {
			return lacks("%s: %s", s.Key, why)
		}
		book, _ := books.Book(s.Key)
		allocation, _ := book.Allocation(cell.Spec.ID)
		switch {
		case s.Granted.Cmp(allocation.Granted) <= 0:
		case shard.FenceVersion < cell.FenceVersion, precedes(s, allocation):
			older = fmt.Errorf("%w: cell %s, %s: granted %s, the book allocates %s", ErrOlderFacts, shard.Cell, s.Key, s.Granted, allocation.Granted)
		default:
			return lacks("%s: the shard was granted %s units, the book allocates %s", s.Key, s.Granted, allocation.Granted)
		}
	}
	return older
}

// precedes tells whether the book counted adjustments that the facts do not have.
func precedes(s core.StockFacts, a core.Allocation) bool {
	return s.AdjustmentVersion < a.FenceVersion || s.AdjustmentVersion == a.FenceVersion && s.LastNumber < a.LastNumber
}

// compareStock gives what the books lack of one stock row, its units apart, or "".
func compareStock(s core.StockFacts, cell core.Cell, books Books) string {
	book, known := books.Book(s.Key)
	allocation, held := book.Allocation(cell.Spec.ID)
	switch {
	case !known || !held:
		if s.Granted.IsZero() && s.LastNumber == 0 {
			return "" // rules alone reached it
		}
		return "no book holds it"
	case s.AdjustmentVersion > cell.FenceVersion:
		return fmt.Sprintf("adjustments of fence version %d", s.AdjustmentVersion)
	case s.LastNumber > lastNumber(allocation, s.AdjustmentVersion):
		return fmt.Sprintf("adjustment number %d of fence version %d", s.LastNumber, s.AdjustmentVersion)
	}
	if book.Settled {
		return "" // its records are in the archive, and nothing of it is granted any more
	}
	if id := s.LastAdjustmentID; id != "" && !strings.HasPrefix(id, sealPrefix) {
		record, found := books.RecordOf(id)
		if !found {
			return "adjustment " + id
		}
		if a := record.Adjustments[record.Find(id)]; a.Key != s.Key || a.Cell != cell.Spec.ID || s.LastNumber > 0 && a.FenceVersion == s.AdjustmentVersion && a.Number != s.LastNumber {
			return fmt.Sprintf("another adjustment %s under number %d", id, s.LastNumber)
		}
	}
	if id := s.BookRecordID; id != "" {
		if _, found := books.Record(id); !found {
			return "book change " + id
		}
	}
	return ""
}

// lastNumber is the book's last number under a fence version: 0 under one that no
// step was taken under yet, and no bound under an older one, which was counted
// before.
func lastNumber(a core.Allocation, version int64) int64 {
	switch {
	case version == a.FenceVersion:
		return a.LastNumber
	case version > a.FenceVersion:
		return 0
	}
	return 1<<63 - 1
}
