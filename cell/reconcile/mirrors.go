package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func unixMilli(ms int64) time.Time { return time.UnixMilli(ms) }

// mirrors walks records and marks of every mirror that admits, and compares its stock.
func (w *walk) mirrors(ctx context.Context) error {
	done := map[admission.Scope]bool{}
	for _, p := range w.scopes() {
		head, admits := w.heads[place{p.Scope.Campaign, p.SKU}]
		if !admits || done[p.Scope] {
			continue
		}
		done[p.Scope] = true
		err := w.records(ctx, p.Scope)
		if err == nil {
			err = w.marks(ctx, p.Scope, head.Build)
		}
		if err != nil && !isMirrors(err) {
			return err
		}
		if err != nil {
			if err := w.leftOut(ctx, p.Scope, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// records walks the request records. A rejected request owes its units alone, and those were asked for.
func (w *walk) records(ctx context.Context, scope admission.Scope) error {
	for cursor := uint64(0); ; {
		page, err := w.mirror.RecordPage(ctx, scope, cursor, int64(w.cfg.Page))
		if err != nil {
			return fmt.Errorf("%w: %w", errMirror, err)
		}
		var list []candidate
		seen := map[ids.ReservationID]*admission.Seen{}
		for i := range page.Records {
			r := &page.Records[i]
			if r.Reservation.Cell() != w.cell || r.State == pb.RequestState_REQUEST_STATE_REJECTED || r.State == pb.RequestState_REQUEST_STATE_RELEASED {
				continue
			}
			if young := page.Now.Sub(unixMilli(r.AdmittedAtMS)) <= w.bounds.inFlight; young && waits(r.State) {
				continue
			}
			seen[r.Reservation] = r
			list = append(list, candidate{r.Reservation, scope.Campaign, r.SKU, r.User, r.Request})
		}
		all, err := w.inShard(ctx, list)
		if err != nil {
			return err
		}
		for i, f := range all {
			f.mirror = &sight{build: page.Build, now: page.Now, record: seen[f.id], settled: true, released: true}
			if len(judgeMirror(f, w.bounds)) > 0 {
				if err := w.suspect(ctx, list[i]); err != nil {
					return err
				}
			}
		}
		if err := w.between(ctx, w.cfg.Page, ""); err != nil {
			return err
		}
		if cursor = page.Next; cursor == 0 {
			return nil
		}
	}
}

func waits(s pb.RequestState) bool {
	return s == pb.RequestState_REQUEST_STATE_ADMITTED || s == pb.RequestState_REQUEST_STATE_QUEUED
}

// marks walks the users' marks: each is the shard's place of its user, or an admission with its record.
func (w *walk) marks(ctx context.Context, scope admission.Scope, build ids.Build) error {
	for cursor := uint64(0); ; {
		page, next, err := w.mirror.MarkPage(ctx, scope, build, cursor, int64(w.cfg.Page))
		if err != nil {
			return fmt.Errorf("%w: %w", errMirror, err)
		}
		if err := w.compareMarks(ctx, scope, build, page); err != nil {
			return err
		}
		if err := w.between(ctx, len(page), ""); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (w *walk) compareMarks(ctx context.Context, scope admission.Scope, build ids.Build, page []admission.Mark) error {
	var places []shard.BuyerFact
	var asks []admission.Seen
	for _, m := range page {
		places = append(places, shard.BuyerFact{Campaign: scope.Campaign, ScopeKey: scope.Key(), User: m.User})
		if waits(m.State) {
			asks = append(asks, admission.Seen{SKU: m.SKU, Request: m.Request, User: m.User})
		}
	}
	records, err := w.mirror.ReadRecords(ctx, scope, build, asks)
	if err != nil {
		return fmt.Errorf("%w: %w", errMirror, err)
	}
	behind := map[ids.ReservationID]bool{}
	for _, r := range records {
		behind[r.Reservation] = true // its record is judged
	}
	have, err := w.shard.Places(ctx, places)
	if err != nil {
		return err
	}
	for _, b := range have {
		behind[b.Reservation] = true
	}
	for _, m := range page {
		if behind[m.Reservation] || m.Reservation.Cell() != w.cell {
			continue
		}
		if err := w.suspect(ctx, candidate{m.Reservation, scope.Campaign, m.SKU, m.User, m.Request}); err != nil {
			return err
		}
	}
	return nil
}
