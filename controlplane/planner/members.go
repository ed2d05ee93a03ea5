package planner

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// join gives every book of a campaign on sale an allocation of 0 for each cell
// that joined after the publish. It is one move per book and tick, under an id that
// the campaign's version makes, so that any leader finishes it; it has no
// adjustment, because no unit moves and no shard is asked. A version whose books
// are complete is not looked at again.
func (p *Planner) join(ctx context.Context, leader core.Leader, s view.Snapshot) {
	for _, c := range s.Campaigns() {
		if c.State != core.CampaignPublished && c.State != core.CampaignPaused || p.joined(c.Spec.ID, 0) >= c.Version {
			continue
		}
		complete := true
		for _, book := range s.Books(c.Spec.ID) {
			if absent := absentFrom(book, c.Spec.Cells); len(absent) > 0 {
				complete = false
				p.note(ctx, p.joinBook(ctx, leader, c, book.Key, absent), "cells have not joined a book", telemetry.CampaignID, c.Spec.ID, telemetry.SKUID, book.Key.SKU)
			}
		}
		if complete {
			p.joined(c.Spec.ID, c.Version)
		}
	}
}

// joined gives the version of a campaign whose books are complete; 0 < version
// raises it.
func (p *Planner) joined(campaign ids.CampaignID, version int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version > 0 {
		p.memory.joined[campaign] = version
	}
	return p.memory.joined[campaign]
}

func absentFrom(book core.Book, cells []ids.CellID) (absent []ids.CellID) {
	if len(book.Allocations) >= len(cells) { // only the campaign's cells have allocations
		return nil
	}
	for _, id := range cells {
		if _, held := book.Allocation(id); !held {
			absent = append(absent, id)
		}
	}
	return absent
}

func (p *Planner) joinBook(ctx context.Context, leader core.Leader, c core.Campaign, key core.BookKey, absent []ids.CellID) error {
	_, err := p.store.Move(ctx, store.Move{
		RecordID: core.JoinRecordID(key, c.Version), Parameters: core.Digest("join", key.String(), strconv.FormatInt(c.Version, 10)), Key: key,
		Actor: actor, Method: actor, Reason: "cells joined the campaign", OperationID: c.LastOperation, Leader: &leader,
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			for _, id := range absent {
				cell, known := cells[id]
				if !known { // its record cannot be read: the book waits for it
					return core.Book{}, nil, fmt.Errorf("%w: %s", core.ErrUnknownCell, id)
				}
				next, err := book.Rebase(cell)
				if err != nil {
					return core.Book{}, nil, err
				}
				book = next
			}
			return book, nil, nil
		},
	})
	return err
}
