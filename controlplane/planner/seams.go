package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ErrNoReporter: the cell has no stream whose process reports for its shard, or
// not this one any more. Nothing was sent; the next tick tries again.
var ErrNoReporter = errors.New("no process reports for the cell over this stream")

// Reporter is the process that speaks for a cell's shard now.
type Reporter struct {
	Instance string
	// Stream tells two links of one process apart; it is never used again.
	Stream uint64
	// FenceVersion is what its Welcome told it.
	FenceVersion int64
}

// Cells is the hub of streams as the planner sees it. link.Hub implements it.
// All methods are safe for concurrent use and none waits for a cell.
type Cells interface {
	// Reporter gives the cell's reporter; false while there is none.
	Reporter(cell ids.CellID) (Reporter, bool)
	// Send queues a directive on the reporter's stream. ErrNoReporter when the
	// stream is not the reporter's any more or its queue is full.
	Send(ctx context.Context, cell ids.CellID, stream uint64, d *pb.Directive) error
	// Facts gives what the cell's shard said of itself in its newest report over the
	// present stream; false while no report came.
	Facts(cell ids.CellID) (Shard, bool)
	// CampaignReady lists, in words, which of the cells' live processes do not yet
	// serve this version of a campaign or a later one; a cell without a live
	// process is listed too. Empty: all do.
	CampaignReady(campaign ids.CampaignID, version int64, cells []ids.CellID) (missing []string)
	// Report gives what the cell last reported of one SKU; false where nothing came
	// under this leader.
	Report(cell ids.CellID, key core.BookKey) (supply.Report, bool)
}

// Freezes tells which SKUs of a cell stand still. freeze.Watch implements it.
type Freezes interface {
	// Why names what holds a SKU of a cell, in words; "": nothing does.
	Why(cell ids.CellID, key core.BookKey) string
}

// Edges knows which edges follow the replicas' routes. api.Routes implements it.
type Edges interface {
	// Behind lists the connected edges that have not acknowledged a view that
	// holds this version of the campaign, and what could not be asked. It may ask
	// other replicas and is bounded by itself.
	Behind(ctx context.Context, campaign ids.CampaignID, version int64) []string
}

// Operations drives the operations of one or more kinds. The drivers of packages
// reclaim, quota and settle implement it.
type Operations interface {
	// Step takes an open operation as far as it gets now and stores every step it
	// finished. It is called again every tick until the operation has ended, never
	// twice at once for one operation, and returns before ctx ends.
	Step(ctx context.Context, leader core.Leader, op core.Operation) error
}

// ErrNoDriver: an operation of a kind that this replica's version does not know
// stands in etcd. It waits for a leader that does.
var ErrNoDriver = errors.New("no driver for this kind of operation")

// ByKind hands each open operation to the driver of its kind.
type ByKind map[string]Operations

// Step implements Operations.
func (k ByKind) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	driver, known := k[op.Kind]
	if !known {
		return fmt.Errorf("%w: %s", ErrNoDriver, op.Kind)
	}
	return driver.Step(ctx, leader, op)
}
