package link

import (
	"context"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Store is what the hub asks of etcd. store.Store implements it; the errors are
// its own.
type Store interface {
	Cell(ctx context.Context, id ids.CellID) (core.Cell, error)
	GrantLease(ctx context.Context, ttl time.Duration) (int64, error)
	KeepLease(ctx context.Context, lease int64) (time.Duration, error)
	RevokeLease(ctx context.Context, lease int64) error
	Register(ctx context.Context, leader core.Leader, in core.Instance, decide func(core.Cell) error) (core.Cell, error)
	Witness(ctx context.Context, cell ids.CellID) (fencing.Witness, bool, error)
	RaiseWitness(ctx context.Context, leader core.Leader, cell ids.CellID, seen fencing.Witness) error
	Regress(ctx context.Context, leader core.Leader, cell ids.CellID, why string) (core.Cell, error)
}

// Shards reads a shard past its cell's processes.
type Shards interface {
	// Look reads how far the shard came; nothing that was committed before the call is missing in it.
	Look(ctx context.Context, cell core.CellSpec) (fencing.Witness, error)
}

// View is the mirror of etcd. view.View implements it.
type View interface {
	Snapshot() view.Snapshot
	Changed() <-chan struct{}
}

// Events is who listens under one leadership: the leader's planner.
type Events interface {
	// OnTermRaised hands over the facts that a reporter read after the shard's term
	// row was raised to this leader's term. core.ErrRestored: the shard knows more
	// than etcd; the stream is refused. Any other error is logged and the reporter
	// is asked again at its next keep-alive.
	OnTermRaised(ctx context.Context, cell ids.CellID, reporter planner.Reporter, facts *pb.TermRaised) error
	// OnDirectiveResult hands over what a shard decided. An error is logged; the
	// process sends the result again as long as the directive comes again.
	OnDirectiveResult(ctx context.Context, cell ids.CellID, reporter planner.Reporter, result *pb.DirectiveResult) error
	// OnReport tells that Usage of the cell is newer. It must not block.
	OnReport(cell ids.CellID)
	// OnRestored tells that a hello showed a fence version or a term that etcd
	// never gave out. It must not block.
	OnRestored(cell ids.CellID, why string)
}

var _ planner.Cells = (*Hub)(nil)
