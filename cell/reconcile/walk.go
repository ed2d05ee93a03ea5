package reconcile

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// walk is one comparison, or a part of one.
type walk struct {
	*Loop
	campaign ids.CampaignID // "": all
	paced    bool
	suspects *suspects
	heads    map[place]admission.Facts // of the mirrors that admit now
	parked   map[place]int64           // units of messages that wait for a person, of those mirrors' builds
	// explained are units that a mirror lacks and a finding of this walk names.
	explained map[place]int64
	fromStart bool     // every id is met
	unread    []string // what could not be compared
	requests  int64
	found     int
	fresh     map[bool]int // new findings that were written, by whether their kind freezes
	putOff    int          // new ones beyond the bound
}

func (l *Loop) newWalk(campaign ids.CampaignID, paced bool) *walk {
	return &walk{
		Loop: l, campaign: campaign, paced: paced, suspects: newSuspects(), heads: map[place]admission.Facts{}, parked: map[place]int64{}, explained: map[place]int64{},
		fresh: map[bool]int{},
	}
}

// place is a SKU of a campaign.
type place struct {
	campaign ids.CampaignID
	sku      ids.SKUID
}

// whole compares everything after a reservation once.
func (w *walk) whole(ctx context.Context, after ids.ReservationID) error {
	if err := w.mirrorHeads(ctx); err != nil {
		return err
	}
	w.fromStart = after == ""
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return w.database(ctx, after) }, w.places, w.adjustments, w.stocks, w.mirrors, w.lookAgain, w.quantities,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// mirrorHeads reads which mirrors admit, and into which build. One that does not answer is named: the
// database is compared without it.
func (w *walk) mirrorHeads(ctx context.Context) error {
	for _, p := range w.scopes() {
		if w.campaign != "" && p.Scope.Campaign != w.campaign {
			continue
		}
		head, err := w.mirror.Facts(ctx, p.Scope, p.SKU)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			w.unread = append(w.unread, fmt.Sprintf("mirror {%s}: %v", p.Scope.Tag(), err))
		case head.Present && head.State == admission.Ready && head.Whole:
			w.heads[place{p.Scope.Campaign, p.SKU}] = head
		}
	}
	return nil
}

// database joins message, reservation and ledger of every id, and asks the mirrors for the give-backs.
func (w *walk) database(ctx context.Context, after ids.ReservationID) error {
	m := newMerge(w.pages, w.campaign, after, w.cfg.Page)
	due := dues{walk: w, of: map[place][]due{}}
	for n := 1; ; n++ {
		f, err := m.next(ctx)
		if err != nil {
			return err
		}
		if f == nil {
			break
		}
		w.requests++
		if in := f.inbox; in != nil && in.Outcome == shard.Parked {
			if p := (place{in.Campaign, in.SKU}); w.heads[p].Build == in.Build {
				w.parked[p] += int64(in.Quantity)
			}
		}
		if len(judgeShard(f, w.bounds)) > 0 {
			if err := w.suspect(ctx, candidateOf(f)); err != nil {
				return err
			}
		} else if err := due.add(ctx, f); err != nil {
			return err
		}
		if n%w.cfg.Page == 0 {
			if err := w.between(ctx, w.cfg.Page, f.id); err != nil {
				return err
			}
		}
	}
	return due.flush(ctx)
}

// due is a give-back that the mirror should have.
type due struct {
	candidate
	effects [2]string // either of them
}

// dues collects give-backs until there are enough to ask the mirror about.
type dues struct {
	*walk
	of map[place][]due
}

func (d *dues) add(ctx context.Context, f *facts) error {
	c := candidateOf(f)
	p := place{c.campaign, c.sku}
	head, admits := d.heads[p]
	if !admits {
		return nil
	}
	f.mirror = &sight{build: head.Build, base: head.BaseVersion}
	if f.notGivenBack() == "" {
		return nil
	}
	effects := [2]string{events.SettleEffectID(string(f.id)), events.ReturnEffectID(string(f.id))}
	if f.hold != nil {
		effects = [2]string{events.ReleaseEffectID(string(f.id)), events.ReleaseEffectID(string(f.id))}
	}
	d.of[p] = append(d.of[p], due{c, effects})
	if len(d.of[p]) < d.cfg.Page {
		return nil
	}
	return d.ask(ctx, p)
}

func (d *dues) flush(ctx context.Context) error {
	for p := range d.of {
		if err := d.ask(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (d *dues) ask(ctx context.Context, p place) error {
	list := d.of[p]
	d.of[p] = nil
	if len(list) == 0 {
		return nil
	}
	effects := make([]string, 0, 2*len(list))
	for _, e := range list {
		effects = append(effects, e.effects[:]...)
	}
	scope, known := d.scopeOf(p)
	if !known {
		return nil
	}
	have, err := d.mirror.GivenBack(ctx, scope, d.heads[p].Build, effects)
	if err != nil {
		return d.leftOut(ctx, scope, err)
	}
	for i, e := range list {
		if !have[2*i] && !have[2*i+1] {
			if err := d.suspect(ctx, e.candidate); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftOut names a mirror that stopped answering; the comparison goes on without it.
func (w *walk) leftOut(ctx context.Context, scope admission.Scope, err error) error {
	if ctx.Err() != nil {
		return err
	}
	w.unread = append(w.unread, fmt.Sprintf("mirror {%s}: %v", scope.Tag(), err))
	for p := range w.heads {
		if s, ok := w.scopeOf(p); ok && s == scope {
			delete(w.heads, p)
		}
	}
	return nil
}

// scopeOf is the mirror of a SKU.
func (w *walk) scopeOf(p place) (admission.Scope, bool) {
	for _, s := range w.scopes() {
		if s.Scope.Campaign == p.campaign && s.SKU == p.sku {
			return s.Scope, true
		}
	}
	return admission.Scope{}, false
}

// places walks the users' places for those with nothing behind them.
func (w *walk) places(ctx context.Context) error {
	var last shard.BuyerFact
	for {
		page, err := w.pages.Buyers(ctx, w.campaign, last, w.cfg.Page)
		if err != nil {
			return err
		}
		for _, b := range page {
			if b.Orphan && b.Reservation.Cell() == w.cell {
				w.suspects.places = append(w.suspects.places, b)
			}
		}
		if len(page) < w.cfg.Page {
			return nil
		}
		last = page[len(page)-1]
		if err := w.between(ctx, len(page), ""); err != nil {
			return err
		}
	}
}

// adjustments: every applied one has its entry. Entries without one are met by stocks.
func (w *walk) adjustments(ctx context.Context) error {
	for last := ""; ; {
		page, err := w.shard.AdjustmentFacts(ctx, w.campaign, last, w.cfg.Page)
		if err != nil {
			return err
		}
		for _, a := range page {
			if !a.Booked && a.Units > 0 {
				w.suspects.findings = append(w.suspects.findings, shard.Finding{
					ID: findingID(w.cell, shard.MissingAction, "adjustment", a.ID), Kind: shard.MissingAction, Campaign: a.Campaign, SKU: a.SKU, Units: a.Units,
					State: shard.FindingReview, Detail: fmt.Sprintf("adjustment %s of %d units was applied and the ledger has no entry of it", a.ID, a.Units),
				})
			}
		}
		if len(page) < w.cfg.Page {
			return nil
		}
		last = page[len(page)-1].ID
	}
}

// stocks walks each SKU's ledger in the order in which its stock moved. Entries are never changed and are
// written under the stock row's lock, so one look is enough; the row itself is compared in lookAgain.
func (w *walk) stocks(ctx context.Context) error {
	all, err := w.shard.StockFacts(ctx, w.campaign)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := w.chain(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) chain(ctx context.Context, s shard.StockFact) error {
	var last shard.ChainFact
	for {
		page, err := w.pages.Chain(ctx, s.Campaign, s.SKU, last.ID, w.cfg.Page)
		if err != nil {
			return err
		}
		for _, e := range page {
			switch {
			case e.Before != last.After || e.StockVersion != last.StockVersion+1:
				w.suspects.add(w.entryFinding(s, shard.QuantityMismatch, e, fmt.Sprintf(
					"entry %d starts at available %d, reserved %d, confirmed %d (version %d); the one before, %d, ended at %d, %d, %d (version %d)",
					e.ID, e.Before[0], e.Before[1], e.Before[2], e.StockVersion, last.ID, last.After[0], last.After[1], last.After[2], last.StockVersion)))
			case e.Orphan:
				f := w.entryFinding(s, shard.DuplicateAction, e, fmt.Sprintf("entry %d moves units for adjustment %s, which the shard does not know so", e.ID, e.BusinessNo))
				if e.After[0] > e.Before[0] { // units that left may be another's by now: no entry brings them back
					f.State, f.Action = shard.FindingProposed, shard.ActReverse
				}
				w.suspects.add(f)
			}
			last = e
		}
		if len(page) < w.cfg.Page {
			return nil
		}
		if err := w.between(ctx, len(page), ""); err != nil {
			return err
		}
	}
}

func (w *walk) entryFinding(s shard.StockFact, kind shard.FindingKind, e shard.ChainFact, detail string) shard.Finding {
	moved := e.After[0] - e.Before[0]
	return shard.Finding{
		ID: findingID(w.cell, kind, "entry", string(s.Campaign), string(s.SKU), fmt.Sprint(e.ID)), Kind: kind, Campaign: s.Campaign, SKU: s.SKU, Entry: e.ID,
		Units: max(moved, -moved), State: shard.FindingReview, Detail: detail,
	}
}
