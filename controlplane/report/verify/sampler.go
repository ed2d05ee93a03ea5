package verify

import (
	"context"
	"fmt"
	"sync"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
)

// entriesPerRead bounds one read of a ledger's growth.
const entriesPerRead = 10000

// Sampler checks I1 to I5 and I8 again and again while a sale runs. It remembers, per shard and SKU,
// the newest ledger entry it saw and what the stock was after it, and which user has which order, so
// a sample costs what happened since the last one. Not for concurrent use.
type Sampler struct {
	plane  Plane
	reader *shards.Reader
	// campaign whose orders are one per user and scope; perSKU as its purchase scope says.
	campaign ids.CampaignID
	perSKU   bool
	ledgers  map[ledgerKey]ledgerEnd
	buyers   map[buyerKey]place
	samples  int64
}

type ledgerKey struct {
	cell ids.CellID
	book core.BookKey
}

// ledgerEnd is how far a ledger was read, and the stock after it.
type ledgerEnd struct {
	entry int64
	after shards.Levels
}

type buyerKey struct{ scope, user string }

// place is where a user's order is; its id alone would not tell two shards apart
// that made the same one.
type place struct {
	cell  ids.CellID
	order string
}

// Sample is what one look found.
type Sample struct {
	Result
	// Exact tells, per SKU, whether reserve + Σ granted over the shards was the sale limit; it must be
	// whenever no adjustment, seal or reclaim is open.
	Exact map[core.BookKey]bool
	// Open tells, per SKU, whether one was open.
	Open map[core.BookKey]bool
	// Books as etcd had them after the shards were read, and the stock rows of each shard that
	// answered: what the judgement stands on, for those who measure.
	Books  []core.Book
	Shards map[ids.CellID]map[core.BookKey]shards.Stock
}

// NewSampler makes a Sampler for one campaign.
func NewSampler(plane Plane, reader *shards.Reader, campaign ids.CampaignID, perSKU bool) *Sampler {
	return &Sampler{plane: plane, reader: reader, campaign: campaign, perSKU: perSKU, ledgers: map[ledgerKey]ledgerEnd{}, buyers: map[buyerKey]place{}}
}

// Samples is how many were taken.
func (s *Sampler) Samples() int64 { return s.samples }

// Sample takes one. The error is for a silent etcd only; a silent shard is in Unchecked.
func (s *Sampler) Sample(ctx context.Context) (Sample, error) {
	before, err := s.plane.Cut(ctx, s.campaign)
	if err != nil {
		return Sample{}, fmt.Errorf("read the books: %w", err)
	}
	cuts := make([]shardCut, len(before.Cells))
	grown := make([]growth, len(before.Cells))
	var wg sync.WaitGroup
	for i, cell := range before.Cells {
		wg.Go(func() { cuts[i], grown[i] = s.readGrowth(ctx, cell) })
	}
	wg.Wait()
	after, err := s.plane.Cut(ctx, s.campaign)
	if err != nil {
		return Sample{}, fmt.Errorf("read the books again: %w", err)
	}
	s.samples++
	t := newTally()
	judgeBooks(t, before)
	judgeBooks(t, after)
	moving := moved(before, after)
	out := Sample{Exact: map[core.BookKey]bool{}, Open: map[core.BookKey]bool{}, Books: after.Books, Shards: map[ids.CellID]map[core.BookKey]shards.Stock{}}
	for _, c := range cuts {
		if c.err == nil {
			out.Shards[c.cell.Spec.ID] = c.stocks
		}
	}
	for _, b := range before.Books {
		if moving[b.Key] {
			continue // the next sample is 100 ms away
		}
		total, whole := judgeSums(t, b, cuts)
		out.Open[b.Key] = before.Open[b.Key] || after.Open[b.Key] || unsettled(before.Cells) || unsettled(after.Cells)
		kept := int64(0)
		if campaignOf(before.Campaigns, b.Key.Campaign).Spec.Reclaim == core.ReclaimNever || b.Settled {
			kept = frozen(b, cuts, true)
		}
		out.Exact[b.Key] = whole && b.Reserve.Int64()+total.granted+kept == b.SaleLimit.Int64()
		if whole && !out.Open[b.Key] && !out.Exact[b.Key] {
			t.breach(I3, string(b.Key.Campaign), string(b.Key.SKU), "", "nothing is under way, and reserve %s + granted %d over the shards is not the limit %s", b.Reserve, total.granted, b.SaleLimit)
		}
	}
	for i := range cuts {
		s.judgeGrowth(t, cuts[i], grown[i])
	}
	for _, i := range []Invariant{I6, I7, I9, I10} {
		t.skip(i, "not sampled")
	}
	out.Result = t.result(after.Revision)
	return out, nil
}

// unsettled tells whether a fence or reclaim is open anywhere.
func unsettled(cells []core.Cell) bool {
	for _, c := range cells {
		if c.State == core.CellFencing || c.ProofID != "" && !c.Reclaimed {
			return true
		}
	}
	return false
}

// growth is what a shard's ledgers grew by, and its fence's history.
type growth struct {
	entries map[core.BookKey][]shards.Entry
	whole   map[core.BookKey]bool // read to the end
	history []shards.FenceChange
}

func (s *Sampler) readGrowth(ctx context.Context, cell core.Cell) (shardCut, growth) {
	c := shardCut{cell: cell, stocks: map[core.BookKey]shards.Stock{}}
	g := growth{entries: map[core.BookKey][]shards.Entry{}, whole: map[core.BookKey]bool{}}
	snapshot, err := s.reader.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
	if err != nil {
		c.err = err
		return c, g
	}
	defer snapshot.Close(ctx)
	stocks, err := snapshot.Stocks(ctx, string(s.campaign))
	if err == nil {
		g.history, err = snapshot.FenceHistory(ctx)
	}
	for _, row := range stocks {
		if err != nil {
			break
		}
		key := core.BookKey{Campaign: ids.CampaignID(row.Campaign), SKU: ids.SKUID(row.SKU)}
		c.stocks[key] = row
		since := s.ledgers[ledgerKey{cell.Spec.ID, key}].entry
		g.entries[key], err = snapshot.Entries(ctx, row.Campaign, row.SKU, since, entriesPerRead)
		g.whole[key] = len(g.entries[key]) < entriesPerRead
	}
	c.err = err
	return c, g
}

// judgeGrowth checks I2, I4, I5 and I8 over what is new in one shard, and remembers it.
func (s *Sampler) judgeGrowth(t *tally, c shardCut, g growth) {
	cell := c.cell.Spec.ID
	if c.err != nil {
		t.miss("cell "+string(cell), c.err.Error(), I4, I5, I8)
		return
	}
	for key, row := range c.stocks {
		if row.Granted != row.Available+row.Reserved+row.Confirmed || min(row.Available, row.Reserved, row.Confirmed) < 0 {
			t.breach(I2, row.Campaign, row.SKU, string(cell), "granted %d, available %d + reserved %d + confirmed %d", row.Granted, row.Available, row.Reserved, row.Confirmed)
		}
		at := ledgerKey{cell, key}
		end := s.ledgers[at]
		for _, e := range g.entries[key] {
			if e.Before != end.after {
				t.breach(I5, row.Campaign, row.SKU, string(cell), "entry %d starts at %+v, the one before ended at %+v", e.ID, e.Before, end.after)
			}
			end = ledgerEnd{entry: e.ID, after: e.After}
			s.judgeWriter(t, c, row, e, g.history)
			s.judgeBuyer(t, c, row, e)
		}
		s.ledgers[at] = end
		if now := (shards.Levels{Available: row.Available, Reserved: row.Reserved, Confirmed: row.Confirmed}); g.whole[key] && now != end.after {
			t.breach(I5, row.Campaign, row.SKU, string(cell), "the ledger ends at %+v, the stock row is %+v", end.after, now)
		}
	}
}

func (s *Sampler) judgeWriter(t *tally, c shardCut, row shards.Stock, e shards.Entry, history []shards.FenceChange) {
	for _, h := range history {
		if e.At.After(h.At) && e.FenceVersion < h.Version {
			t.breach(I8, row.Campaign, row.SKU, string(c.cell.Spec.ID), "entry %d was written under fence version %d after version %d was installed", e.ID, e.FenceVersion, h.Version)
			return
		}
	}
}

func (s *Sampler) judgeBuyer(t *tally, c shardCut, row shards.Stock, e shards.Entry) {
	if e.Action != "RESERVE" {
		return
	}
	if e.Order == "" {
		t.breach(I4, row.Campaign, row.SKU, string(c.cell.Spec.ID), "reservation %s was made without an order", e.Business)
		return
	}
	key := buyerKey{scope: row.SKU, user: e.User}
	if !s.perSKU {
		key.scope = "*"
	}
	is := place{c.cell.Spec.ID, e.Order}
	if have, ok := s.buyers[key]; ok && have != is {
		t.breach(I4, row.Campaign, row.SKU, string(is.cell), "user %q has order %s in cell %s and %s in cell %s", e.User, have.order, have.cell, is.order, is.cell)
	}
	s.buyers[key] = is
}
