package planner_test

import (
	"cmp"
	"errors"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/internal/ids"
)

// shelf is what a shard is compared with: one cell, one book, and records by adjustment.
type shelf struct {
	cell    core.Cell
	book    core.Book
	records map[string]core.Record
	deleted bool
	state   core.CampaignState // of the campaign; 0: PUBLISHED
}

func (s shelf) Cell(ids.CellID) (core.Cell, bool)    { return s.cell, true }
func (s shelf) Book(core.BookKey) (core.Book, bool)  { return s.book, true }
func (s shelf) Record(id string) (core.Record, bool) { r, ok := s.records[id]; return r, ok }
func (s shelf) Campaign(id ids.CampaignID) (core.Campaign, bool) {
	return core.Campaign{Spec: core.CampaignSpec{ID: id}, State: cmp.Or(s.state, core.CampaignPublished)}, true
}
func (s shelf) RecordOf(id string) (core.Record, bool) { return s.Record(id) }

func (s shelf) Tombstone(ids.CampaignID) (core.Tombstone, bool) {
	return core.Tombstone{}, s.deleted
}

// TestCompareADeletedCampaign: the shard's rows outlive the books of a settled campaign.
func TestCompareADeletedCampaign(t *testing.T) {
	facts := planner.Shard{Cell: "cell-1", FenceVersion: 1, Stocks: []core.StockFacts{{
		Key: core.BookKey{Campaign: "c", SKU: "s"}, Granted: quantity.Must(5), AdjustmentVersion: 1, LastNumber: 3, LastAdjustmentID: "gone",
	}}}
	books := shelf{cell: core.Cell{Spec: core.CellSpec{ID: "cell-1"}, FenceVersion: 1}}
	if err := planner.Compare(facts, books); !errors.Is(err, core.ErrRestored) {
		t.Errorf("without a tombstone: %v", err)
	}
	books.deleted = true
	if err := planner.Compare(facts, books); err != nil {
		t.Errorf("with one: %v", err)
	}
}

// TestCompareASettledSKU: its records are in the archive, so no id is looked for; units and numbers are compared
// until the campaign is SETTLED, and nothing of it after, when a fence may have moved the shard alone.
func TestCompareASettledSKU(t *testing.T) {
	key := core.BookKey{Campaign: "c", SKU: "s"}
	facts := planner.Shard{Cell: "cell-1", FenceVersion: 1, Stocks: []core.StockFacts{{
		Key: key, Granted: quantity.Must(5), AdjustmentVersion: 1, LastNumber: 3, LastAdjustmentID: "archived", BookRecordID: "archived",
	}}}
	books := shelf{cell: core.Cell{Spec: core.CellSpec{ID: "cell-1"}, FenceVersion: 1}, state: core.CampaignClosed}
	books.book = core.Book{Key: key, Allocations: []core.Allocation{{Cell: "cell-1", Granted: quantity.Must(5), FenceVersion: 1, LastNumber: 3}}}
	if err := planner.Compare(facts, books); !errors.Is(err, core.ErrRestored) {
		t.Errorf("a record that is nowhere: %v", err)
	}
	books.book.Settled = true
	if err := planner.Compare(facts, books); err != nil {
		t.Errorf("a settled book: %v", err)
	}
	facts.Stocks[0].LastNumber = 4
	if err := planner.Compare(facts, books); !errors.Is(err, core.ErrRestored) {
		t.Errorf("a settled book, and a number ahead of it: %v", err)
	}
	books.state = core.CampaignSettled
	if err := planner.Compare(facts, books); err != nil {
		t.Errorf("a settled campaign: %v", err)
	}
}

// TestCompare: facts and books are read at two moments. A shard that knows what the books lack means that
// etcd lost its past; facts that are only older than the books do not: the shard is read again.
func TestCompare(t *testing.T) {
	key := core.BookKey{Campaign: "c", SKU: "s"}
	numbered := func(id string, number int64) core.Record {
		return core.Record{ID: id, Key: key, Adjustments: []core.Adjustment{{
			ID: id, Key: key, Cell: "cell-1", Kind: core.KindGrant, Step: core.Step{FenceVersion: 1, Number: number},
		}}}
	}
	known := map[string]core.Record{"g1": numbered("g1", 1), "r2": numbered("r2", 2)}
	for _, row := range []struct {
		name                string
		cellVersion         int64 // of the cell's record
		bookVersion, number int64 // of the allocation
		allocated           int
		last                string // of the shard, under fence version 1
		lastNumber          int64
		granted             int
		want                error
	}{
		{"they agree", 1, 1, 1, 100, "g1", 1, 100, nil},
		{"a grant is on its way", 1, 1, 2, 110, "g1", 1, 100, nil},
		{"a return was applied and is not booked", 1, 1, 2, 100, "r2", 2, 90, nil},
		{"a return was booked after the facts were read", 1, 1, 2, 90, "g1", 1, 100, planner.ErrOlderFacts},
		{"a fence was reclaimed after the facts were read", 2, 1, 1, 40, "g1", 1, 100, planner.ErrOlderFacts},
		{"more than the book allocates", 1, 1, 1, 90, "g1", 1, 100, core.ErrRestored},
		{"a number ahead", 1, 1, 1, 100, "r2", 2, 100, core.ErrRestored},
		{"another id under the number", 1, 1, 1, 100, "r2", 1, 100, core.ErrRestored},
		{"a lost id, and the book went on", 1, 1, 5, 90, "lost", 3, 100, core.ErrRestored},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := func(n int) quantity.Quantity { v, _ := quantity.New(int64(n)); return v }
			books := shelf{records: known}
			books.cell = core.Cell{Spec: core.CellSpec{ID: "cell-1"}, FenceVersion: row.cellVersion}
			books.book = core.Book{Key: key, Allocations: []core.Allocation{{
				Cell: "cell-1", Granted: q(row.allocated), FenceVersion: row.bookVersion, LastNumber: row.number,
			}}}
			err := planner.Compare(planner.Shard{Cell: "cell-1", FenceVersion: 1, Stocks: []core.StockFacts{{
				Key: key, Granted: q(row.granted), AdjustmentVersion: 1, LastNumber: row.lastNumber, LastAdjustmentID: row.last,
			}}}, books)
			if !errors.Is(err, row.want) {
				t.Fatalf("%v, want %v", err, row.want)
			}
		})
	}
}
