package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Ids of what the planner does by itself: digests of what they were decided on, so
// that they fit what shards take as an id, however long the names are.

// AutoTopUpID names the record of the round of top-ups that was decided on one
// change of a book. The change's own id is part of it: versions come again after
// etcd lost its past, and a shard remembers what it applied.
func AutoTopUpID(b core.Book) string { return "auto." + decidedOn("top-up", b) }

func autoGrantID(b core.Book, cell ids.CellID) string {
	return "auto." + decidedOn("top-up", b, string(cell))
}

// AutoRebalanceID names the operation of the rebalance that was decided on one
// change of a book for the n-th time, from 0. It is decided again where the one
// before ended and left the book as it was: nobody could give or take then.
func AutoRebalanceID(b core.Book, n int) string {
	if n == 0 {
		return "rebalance." + decidedOn("rebalance", b)
	}
	return "rebalance." + decidedOn("rebalance", b, strconv.Itoa(n))
}

func decidedOn(what string, b core.Book, more ...string) string {
	return core.Digest(append([]string{what, b.Key.String(), strconv.FormatInt(b.Version, 10), b.LastRecordID}, more...)...)
}

// autoTopUp books the next round of top-ups of a SKU; false where none is due.
func (p *Planner) autoTopUp(ctx context.Context, leader core.Leader, on onSale) (booked bool, err error) {
	if on.sku.TopUp.Policy != core.AutoAuto || on.book.Reserve.IsZero() {
		return false, nil
	}
	plan, err := supply.TopUps(on.book, on.sku.TopUp, on.positions, p.rules(on.campaign.Spec.CloseAt))
	if err != nil || len(plan.Grants) == 0 {
		return false, err
	}
	moved, err := p.store.Move(ctx, p.topUpMove(leader, on, plan))
	if err != nil {
		return false, err
	}
	if !moved.Replayed {
		p.log.InfoContext(ctx, "cells were topped up", telemetry.Event, "auto_top_up", telemetry.CampaignID, on.campaign.Spec.ID, telemetry.SKUID, on.sku.ID,
			"cells", len(plan.Grants), "units", plan.Reserve.Int64()-plan.ReserveAfter.Int64(), "reserve", moved.Book.Reserve.Int64())
	}
	return true, nil
}

func (p *Planner) topUpMove(leader core.Leader, on onSale, plan allocator.RoundPlan) store.Move {
	key, version := on.book.Key, on.book.Version
	reason := fmt.Sprintf("%d cells at or below %d permille of their first grant", plan.Low, on.sku.TopUp.LowWaterPermille)
	return store.Move{
		// What else was decided on that version is the same record: whoever finds it
		// has nothing to add.
		RecordID: AutoTopUpID(on.book), Parameters: core.Digest("auto top-up", key.String(), strconv.FormatInt(version, 10)), Key: key,
		ExpectedVersion: version, Actor: actor, Method: "auto top-up", Reason: reason, Leader: &leader,
		Also: func(tx *store.Tx) error {
			return mayAuto(tx, on, func(s core.SKUSpec) core.Auto { return s.TopUp.Policy })
		},
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			var adjustments []core.Adjustment
			for _, g := range plan.Grants {
				id := ids.CellID(g.Cell)
				if cells[id].FenceVersion != on.fenceVersion(id) || cells[id].Paused {
					return core.Book{}, nil, errNoMore // its report was of another, or it sells nothing now
				}
				next, step, err := book.Grant(cells[id], g.Units)
				if err != nil {
					return core.Book{}, nil, err
				}
				book = next
				adjustments = append(adjustments, core.Adjustment{
					ID: autoGrantID(on.book, id), Key: key, Cell: id, Kind: core.KindGrant, Units: g.Units, State: core.StateBooked, Step: step,
					Actor: actor, Reason: reason, CreatedAt: p.clock.Now().UTC(),
				})
			}
			return book, adjustments, nil
		},
	}
}

// fenceVersion is the cell's as the pass saw it.
func (on onSale) fenceVersion(id ids.CellID) int64 {
	at, found := slices.BinarySearchFunc(on.positions, id, func(p supply.Position, id ids.CellID) int { return cmp.Compare(p.ID(), id) })
	if !found {
		return 0
	}
	return on.positions[at].Cell.FenceVersion
}

// mayAuto looks again, in the transaction, at what allows the planner to act by
// itself: the campaign is on sale, its buckets are where they were, the SKU is not
// held, the policy is AUTO. errNoMore.
func mayAuto(tx *store.Tx, on onSale, policy func(core.SKUSpec) core.Auto) error {
	c, known, err := tx.Campaign(on.campaign.Spec.ID)
	if err != nil {
		return err
	}
	book, held, err := tx.Book(on.book.Key)
	if err != nil {
		return err
	}
	route, _, err := tx.Route(on.campaign.Spec.ID)
	if err != nil {
		return err
	}
	if !known || !held || route.Version != on.route || c.ReadState(tx.Now()) != core.CampaignOpen || !stocks(c, on.sku.ID, book) {
		return errNoMore
	}
	for _, sku := range c.Spec.SKUs {
		if sku.ID == on.sku.ID && policy(sku) == core.AutoAuto {
			return nil
		}
	}
	return errNoMore
}

// autoRebalance stores a rebalance as an operation, which the driver of that kind
// carries out. Without the policy AUTO only what cells without a bucket still have
// is taken: nobody can buy it there.
func (p *Planner) autoRebalance(ctx context.Context, leader core.Leader, on onSale) error {
	key := on.book.Key
	if !p.drives(core.OperationRebalance) || !p.rebalanceDue(key) {
		return nil
	}
	leavingOnly := on.sku.Rebalance != core.AutoAuto
	plan, err := supply.Rebalance(on.book, on.positions, p.rules(on.campaign.Spec.CloseAt), leavingOnly)
	if err != nil || len(plan.Moves) == 0 {
		return err
	}
	id, due := p.nextRebalance(on.book)
	if !due {
		return nil
	}
	_, err = p.store.Update(ctx, "propose "+id, func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		_, done, err := tx.Operation(id)
		if err != nil || done {
			return err
		}
		policy := func(s core.SKUSpec) core.Auto { return s.Rebalance }
		if leavingOnly {
			policy = func(core.SKUSpec) core.Auto { return core.AutoAuto }
		}
		if err := mayAuto(tx, on, policy); err != nil {
			return err
		}
		book, _, err := tx.Book(key)
		if err != nil {
			return err
		}
		if book.Version != on.book.Version {
			return core.VersionConflict(on.book.Version, book.Version)
		}
		op := core.Operation{
			ID: id, Kind: core.OperationRebalance, Subject: string(key.Campaign), State: core.OperationPending, Actor: actor, Reason: "policy AUTO",
			StartedAt: tx.Now(), Moves: plan.Moves, Parameters: core.Digest("auto rebalance", key.String(), strconv.FormatInt(on.book.Version, 10)),
		}
		return errors.Join(tx.PutOperation(op), tx.Audit(core.Audit{Actor: actor, Method: "auto rebalance", OperationID: id, Subject: "book " + key.String(), Reason: op.Reason}))
	})
	if err == nil {
		p.noteRebalance(key)
		p.log.InfoContext(ctx, "a rebalance was proposed", telemetry.Event, "auto_rebalance", telemetry.CampaignID, key.Campaign, telemetry.SKUID, key.SKU,
			"operation_id", id, "moves", len(plan.Moves))
	}
	return err
}

// maxDoublings bounds how much later each try of a rebalance on one change of a book
// comes than the one before: 64 times RebalanceEvery at most.
const maxDoublings = 6

// nextRebalance names the next rebalance to be decided on a book as it is; false
// while one is open, or ended too recently: each try waits twice as long as the one
// before, so that what is refused all day leaves few operations. From the view; the
// transaction finds an operation that it does not show yet.
func (p *Planner) nextRebalance(b core.Book) (id string, due bool) {
	s := p.view.Snapshot()
	for n := 0; ; n++ {
		id := AutoRebalanceID(b, n)
		before, known := s.Operation(id)
		if !known {
			return id, true
		}
		wait := p.cfg.RebalanceEvery << min(n, maxDoublings)
		_, next := s.Operation(AutoRebalanceID(b, n+1))
		if !before.State.Terminal() || !next && p.clock.Now().Sub(before.EndedAt) < wait {
			return "", false
		}
	}
}

// drives tells whether anybody carries on operations of a kind here: what nobody
// carries out must not be proposed, because it would hold the SKU for ever.
func (p *Planner) drives(kind string) bool {
	if drivers, several := p.operations.(ByKind); several {
		_, known := drivers[kind]
		return known
	}
	return true
}

func (p *Planner) rebalanceDue(key core.BookKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.memory.rebalanced[key]
	return !known || p.clock.Now().Sub(last) >= p.cfg.RebalanceEvery
}

func (p *Planner) noteRebalance(key core.BookKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.rebalanced[key] = p.clock.Now()
}
