// Package lottery carries out draws: the winners of each SKU over all cells, the evidence in the archive,
// the word in each entrant's shard, and the units to each winner's cell.
//
// # Promise
//
// A draw depends on nothing but the seed that was promised at the publish, the entrants that were there when
// entry was closed, and the beacon; it is repeated with the same outcome, whoever leads and wherever the last
// leader died. The evidence is in the archive before the first shard hears of a winner, and units move with
// the record of the draw in one transaction. A cell whose shard does not answer holds the draw up, because
// its customers entered; one that was written off before the evidence was kept is named as lost, and of one
// that is lost after it the winners are drawn and their units stay in the reserve.
//
// # Order, for each SKU
//
//	close   each shard ends entry and counts; the list is digested
//	draw    the winners by the list's digest
//	keep    parts and document into the archive, and their name into the operation: from now on they say who
//	        won, whatever becomes of a cell
//	tell    each shard its winners; then that everybody else has lost
//	grant   one transaction: the draw in the campaign's record, each cell the units of its winners
//
// Neighbours: allocator draws; fencing/fencer reads and tells shards; archive keeps; planner drives.
package lottery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// StepDraw is the one step of a draw; its detail names the SKU.
const StepDraw = "draw"

// Shard is one connection to a cell's shard under the fencer's role; *fencer.Fencer is one.
type Shard interface {
	CloseEntries(ctx context.Context, cell string, sku fencing.SKU) (int64, error)
	Entries(ctx context.Context, sku fencing.SKU, after string, limit int) ([]fencer.Entry, error)
	DrawEntries(ctx context.Context, cell string, sku fencing.SKU, winners []string) error
	EndDraw(ctx context.Context, cell string, sku fencing.SKU, winners int64) error
	Close(ctx context.Context) error
}

// Deps are what a driver is given; all are required but Archive.
type Deps struct {
	Store   *store.Store
	View    *view.View
	Open    func(ctx context.Context, spec core.CellSpec) (Shard, error)
	Archive archive.Archive // nil: none is configured, and nothing is drawn
	Clock   clock.Clock
	Log     *slog.Logger
}

// Driver drives operations of kind draw-lottery. It implements planner.Operations. Make it with New.
type Driver struct {
	Deps
	pace *operation.Pace
}

// retryAfter is how long a draw that met an error is left alone: each try reads every entry.
const retryAfter = 5 * time.Second

// New makes a driver.
func New(d Deps) *Driver { return &Driver{Deps: d, pace: operation.NewPace(d.Clock, retryAfter)} }

// ErrNoArchive: a draw leaves evidence, and there is nowhere to keep it.
var ErrNoArchive = errors.New("no archive is configured (archive_dir): a draw must leave evidence")

// Step draws the next SKU, or ends the operation when all are drawn.
func (d *Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	if !d.pace.Due(op.ID) {
		return nil
	}
	snapshot, err := d.View.WaitFor(ctx, op.ModRevision)
	if err != nil {
		return err
	}
	campaign, known := snapshot.Campaign(ids.CampaignID(op.Subject))
	if !known || campaign.State == core.CampaignSettled || campaign.Cancelled() {
		return d.end(ctx, leader, op, core.OperationFailed, "the campaign ended before it was drawn")
	}
	for _, sku := range campaign.Spec.SKUs {
		if _, drawn := campaign.Draw(sku.ID); drawn {
			continue
		}
		err := d.draw(ctx, leader, op, snapshot, campaign, sku)
		if err == nil || errors.Is(err, core.ErrNotLeader) {
			return err
		}
		d.pace.Postpone(op.ID)
		return errors.Join(err, d.wait(ctx, leader, op, fmt.Sprintf("%s: %v", sku.ID, err)))
	}
	return d.end(ctx, leader, op, core.OperationDone, fmt.Sprintf("%d SKUs drawn", len(campaign.Draws)))
}

// draw is one SKU from its entries to its grants.
func (d *Driver) draw(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, campaign core.Campaign, sku core.SKUSpec) error {
	if d.Archive == nil {
		return ErrNoArchive
	}
	homes, lost := d.homes(s, campaign.Spec.ID)
	one := drawing{
		Driver: d, key: core.BookKey{Campaign: campaign.Spec.ID, SKU: sku.ID}, campaign: campaign, units: sku.SaleLimit, op: op, homes: homes, lost: lost,
	}
	if op.Drawing == sku.ID {
		if err := one.load(ctx); err != nil {
			return err
		}
	} else if err := one.begin(ctx, leader); err != nil {
		return err
	}
	if err := one.tell(ctx); err != nil {
		return err
	}
	if err := one.grant(ctx, leader, s); err != nil {
		return err
	}
	d.Log.InfoContext(ctx, "lottery drawn", telemetry.Event, "lottery_drawn", telemetry.CampaignID, string(one.key.Campaign), telemetry.SKUID, string(one.key.SKU),
		"operation_id", op.ID, "entrants", one.doc.Entrants, "winners", one.doc.Winners, "ungranted", one.ungranted)
	return nil
}

// homes lists the cells whose shards have entries, in the order of their entries' ids, and those that are
// gone for good.
func (d *Driver) homes(s view.Snapshot, campaign ids.CampaignID) (homes []core.Cell, lost []ids.CellID) {
	route, _ := s.Route(campaign)
	for _, cell := range s.Cells() {
		if !route.Owns(cell.Spec.ID) {
			continue
		}
		if proof, found := s.Proof(cell.Spec.ID, cell.FenceVersion); found && proof.Evidence == core.EvidenceAttestedLoss {
			lost = append(lost, cell.Spec.ID)
			continue
		}
		homes = append(homes, cell)
	}
	sortByEntry(homes)
	return homes, lost
}

func (d *Driver) wait(ctx context.Context, leader core.Leader, op core.Operation, detail string) error {
	return d.change(ctx, leader, op.ID, func(_ *store.Tx, op core.Operation) core.Operation { return op.Waits(StepDraw, detail) })
}

func (d *Driver) end(ctx context.Context, leader core.Leader, op core.Operation, state core.OperationState, detail string) error {
	return d.change(ctx, leader, op.ID, func(tx *store.Tx, op core.Operation) core.Operation { return op.End(state, detail, tx.Now()) })
}

// change stores what edit makes of an operation that is open, under this leader.
func (d *Driver) change(ctx context.Context, leader core.Leader, id string, edit func(*store.Tx, core.Operation) core.Operation) error {
	_, err := d.Store.Update(ctx, "step "+id, func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		op, found, err := tx.Operation(id)
		if err != nil || !found || op.State.Terminal() {
			return err
		}
		next := edit(tx, op)
		if next.State == op.State && next.Step == op.Step && next.Detail == op.Detail {
			return nil
		}
		return tx.PutOperation(next)
	})
	return err
}
