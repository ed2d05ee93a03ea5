package reconcile

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// quantities compares the stock rows with the ends of their ledgers, twice, and with the mirrors in two
// walks: what a mirror lacks may be named by id in the walk that began after it went.
func (w *walk) quantities(ctx context.Context) error {
	first, err := w.judgeStocks(ctx)
	if err != nil {
		return err
	}
	last := w.lacking
	w.lacking, w.doubtful = map[string]string{}, false
	if len(first) == 0 {
		return nil
	}
	if err := w.deps.Clock.Sleep(ctx, w.cfg.Confirm); err != nil {
		return err
	}
	second, err := w.judgeStocks(ctx)
	if err != nil {
		return err
	}
	before := map[string]string{}
	for _, f := range first {
		before[f.ID] = f.Detail
	}
	for _, f := range second {
		switch {
		case before[f.ID] != f.Detail:
			continue // it moves
		case f.ID == stockID(w.cell, inMirror, f.Campaign, f.SKU):
			if w.lacking[f.ID] = f.Detail; last[f.ID] != f.Detail {
				w.doubtful = true
				continue
			}
		}
		if err := w.keep(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) judgeStocks(ctx context.Context) ([]shard.Finding, error) {
	before, err := w.mirrorStocks(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := w.shard.StockFacts(ctx, w.campaign)
	if err != nil {
		return nil, err
	}
	after, err := w.mirrorStocks(ctx)
	if err != nil {
		return nil, err
	}
	var out []shard.Finding
	for _, s := range rows {
		p := place{s.Campaign, s.SKU}
		if s.Units != s.After || s.Version != s.EntryAt {
			out = append(out, w.stockFinding(s, inLedger, s.Units[0]-s.After[0], fmt.Sprintf(
				"the stock row has available %d, reserved %d, confirmed %d (version %d); its last entry %d ended at %d, %d, %d (version %d)",
				s.Units[0], s.Units[1], s.Units[2], s.Version, s.Entry, s.After[0], s.After[1], s.After[2], s.EntryAt)))
		}
		m, asked := before[p]
		if !asked || m != after[p] || !w.fromStart {
			continue // it moves, or it could not be asked, or not all parked messages were met
		}
		if missing, comparable := w.missing(s, m); comparable && missing != 0 {
			out = append(out, w.stockFinding(s, inMirror, int32(missing), fmt.Sprintf(
				"the mirror of build %s has %d units; the shard has %d available, %d wait parked, %d are admitted without an outcome, and findings name %d",
				m.Build, m.Stock, s.Units[0], w.parked[p], m.OutstandingUnits, w.explained[p])))
		}
	}
	return out, nil
}

// missing is how many units the mirror has too few (or, below 0, too many) by I9; not comparable while
// something is under way.
func (w *walk) missing(s shard.StockFact, m admission.Facts) (n int64, comparable bool) {
	p := place{s.Campaign, s.SKU}
	if s.Pending > 0 || m.StreamLength > 0 || m.Build != s.Raised || m.LastNumber > s.Number { // a return was debited here and is not applied there
		return 0, false
	}
	waiting := m.OutstandingUnits
	if m.Outstanding == 0 {
		waiting = 0 // a message that was lost takes its units out of no count
	}
	return int64(s.Units[0]) - w.parked[p] - waiting - w.explained[p] - m.Stock, true
}

// mirrorStocks reads the mirrors' stocks without their clocks.
func (w *walk) mirrorStocks(ctx context.Context) (map[place]admission.Facts, error) {
	out := map[place]admission.Facts{}
	for _, sc := range w.scopes() {
		p := place{sc.Scope.Campaign, sc.SKU}
		if _, admits := w.heads[p]; !admits {
			continue
		}
		m, err := w.mirror.Facts(ctx, sc.Scope, sc.SKU)
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			continue // unknown is no difference
		}
		if m.Present && m.State == admission.Ready && m.Whole {
			m.NowMS, m.Gate, m.Bound, m.RefusedForStock = 0, 0, 0, 0
			out[p] = m
		}
	}
	return out, nil
}

func (w *walk) stockFinding(s shard.StockFact, what string, units int32, detail string) shard.Finding {
	return shard.Finding{
		ID: stockID(w.cell, what, s.Campaign, s.SKU), Kind: shard.QuantityMismatch, Campaign: s.Campaign, SKU: s.SKU,
		Units: max(units, -units), State: shard.FindingReview, Detail: detail,
	}
}

// What a stock row is compared with.
const (
	inLedger = "ledger"
	inMirror = "mirror"
)

func stockID(cell ids.CellID, what string, campaign ids.CampaignID, sku ids.SKUID) string {
	return findingID(cell, shard.QuantityMismatch, what, string(campaign), string(sku))
}
