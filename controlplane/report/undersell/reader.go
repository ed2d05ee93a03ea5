package undersell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// Bounds of one reading.
const (
	tries  = 5  // of a book that moves
	atOnce = 16 // shards read at the same time
)

// Plane gives the control plane's side of a campaign, at one etcd revision no older
// than the call: its record, books, cells, and the keys with an open adjustment.
type Plane interface {
	Campaign(ctx context.Context, id ids.CampaignID) (Side, error)
}

// Side is the control plane's side of one campaign.
type Side struct {
	Campaign core.Campaign
	Books    []core.Book
	Cells    []core.Cell
	Open     map[core.BookKey]bool
}

// Result is the accounts of a campaign.
type Result struct {
	Side     Side
	Accounts []Account
	// Unreachable cells with why; their units are FROZEN.
	Unreachable map[ids.CellID]error
	// Totals of the cells that answered, of the snapshots that the accounts were taken from;
	// empty unless the Reader was asked for them.
	Totals map[ids.CellID]shards.Totals
}

// Reader makes accounts from the shards. Safe for concurrent use.
type Reader struct {
	Plane  Plane
	Shards *shards.Reader
	Clock  clock.Clock
	// Totals asks for Result.Totals, and for every cell that ever held units of the
	// campaign and is not lost: one that gave all back still has its orders.
	Totals bool
}

// Read takes the accounts of a campaign: shards between two readings of the books,
// again while a book moves. ErrMoving after a bounded number of tries,
// core.ErrUnknownCampaign.
func (r Reader) Read(ctx context.Context, id ids.CampaignID) (Result, error) {
	var last error
	for try := range tries {
		if try > 0 {
			if err := r.Clock.Sleep(ctx, 50*time.Millisecond); err != nil {
				return Result{}, err
			}
		}
		before, err := r.Plane.Campaign(ctx, id)
		if err != nil {
			return Result{}, err
		}
		shardsOf := r.shards(ctx, before)
		after, err := r.Plane.Campaign(ctx, id)
		if err != nil {
			return Result{}, err
		}
		if moved(before.Books, after.Books) {
			last = fmt.Errorf("%w: the books of %s moved", ErrMoving, id)
			continue
		}
		var out Result
		if out, last = assemble(after, before.Open, shardsOf); !errors.Is(last, ErrMoving) {
			return out, last
		}
	}
	return Result{}, last
}

func moved(before, after []core.Book) bool {
	if len(before) != len(after) {
		return true
	}
	for i := range before {
		if before[i].Key != after[i].Key || before[i].Version != after[i].Version || before[i].LastRecordID != after[i].LastRecordID {
			return true
		}
	}
	return false
}

// holdings is one cell's stock rows by SKU.
type holdings struct {
	cell   core.Cell
	rows   map[string]shards.Unsold
	totals shards.Totals
	err    error
}

func assemble(side Side, open map[core.BookKey]bool, cells []holdings) (Result, error) {
	out := Result{Side: side, Unreachable: map[ids.CellID]error{}, Totals: map[ids.CellID]shards.Totals{}}
	for _, h := range cells {
		if h.err != nil {
			out.Unreachable[h.cell.Spec.ID] = h.err
			continue
		}
		out.Totals[h.cell.Spec.ID] = h.totals
	}
	for _, book := range side.Books {
		by := map[ids.CellID]Holding{}
		for _, h := range cells {
			by[h.cell.Spec.ID] = Holding{Cell: h.cell, Stock: h.rows[string(book.Key.SKU)], Err: h.err}
		}
		account, err := Take(book, side.Campaign, by, open[book.Key] || side.Open[book.Key])
		if err != nil {
			return Result{}, err
		}
		out.Accounts = append(out.Accounts, account)
	}
	return out, nil
}

// shards reads the shards of the cells that hold units, or ever held some when totals
// are asked for, several at once.
func (r Reader) shards(ctx context.Context, side Side) []holdings {
	holds := map[ids.CellID]bool{}
	for _, b := range side.Books {
		for _, a := range b.Allocations {
			lost := !a.WrittenOff.IsZero() && a.Granted == a.WrittenOff
			if a.Granted != a.WrittenOff || r.Totals && !lost && a.LastNumber > 0 {
				holds[a.Cell] = true
			}
		}
	}
	var out []holdings
	for _, c := range side.Cells {
		if holds[c.Spec.ID] {
			out = append(out, holdings{cell: c})
		}
	}
	turn := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range out {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			out[i].err = r.shard(ctx, &out[i], side.Campaign)
		})
	}
	wg.Wait()
	return out
}

func (r Reader) shard(ctx context.Context, h *holdings, campaign core.Campaign) error {
	snapshot, err := r.Shards.Snapshot(ctx, h.cell.Spec.Shard.ReaderDSNFile)
	if err != nil {
		return err
	}
	defer snapshot.Close(ctx)
	fence, err := snapshot.Fence(ctx)
	if err != nil {
		return err
	}
	if fence.Cell != string(h.cell.Spec.ID) {
		return fmt.Errorf("%w: it belongs to cell %q", shards.ErrUnreachable, fence.Cell)
	}
	rows, err := snapshot.Unsold(ctx, string(campaign.Spec.ID), campaign.EndedAt())
	if err != nil {
		return err
	}
	h.rows = map[string]shards.Unsold{}
	for _, row := range rows {
		h.rows[row.SKU] = row
	}
	if r.Totals {
		h.totals, err = snapshot.Totals(ctx, string(campaign.Spec.ID))
	}
	return err
}
