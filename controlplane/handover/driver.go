package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Cells knows which processes serve a campaign. link.Hub implements it.
type Cells interface {
	// CampaignReady lists, in words, which of the cells' live processes do not yet serve
	// this version of a campaign; a cell without a live process is listed too.
	CampaignReady(campaign ids.CampaignID, version int64, cells []ids.CellID) (missing []string)
}

// Config of a Driver; zero values have the default in brackets.
type Config struct {
	// RetryInterval is the pause before a step that failed is tried again [1s].
	RetryInterval time.Duration
	// ShardTimeout bounds what one call of Step asks of shards, connections included [15s].
	ShardTimeout time.Duration
	// PageRows is how many rows of an export one page reads [2,000]; at most 10,000.
	PageRows int
	// PagesPerStep bounds the pages that one call of Step carries [128]; between two
	// calls the operation says how far it is.
	PagesPerStep int
}

// Deps are what a Driver is given; all are required but Log.
type Deps struct {
	Store *store.Store
	View  *view.View
	Cells Cells
	Open  Open
	Clock clock.Clock
	Log   *slog.Logger
}

// Driver carries handovers on for the leader.
type Driver struct {
	Deps
	cfg Config

	pace *operation.Pace
}

var _ planner.Operations = (*Driver)(nil)

// New makes a driver.
func New(cfg Config, deps Deps) *Driver {
	if cfg.RetryInterval <= 0 {
		cfg.RetryInterval = time.Second
	}
	if cfg.ShardTimeout <= 0 {
		cfg.ShardTimeout = 15 * time.Second
	}
	if cfg.PageRows <= 0 {
		cfg.PageRows = 2_000
	}
	if cfg.PagesPerStep <= 0 {
		cfg.PagesPerStep = 128
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{Deps: deps, cfg: cfg, pace: operation.NewPace(deps.Clock, cfg.RetryInterval)}
}

// work is one operation in one call of Step.
type work struct {
	d      *Driver
	leader core.Leader
	op     core.Operation
	from   core.Cell
	to     core.Cell
	open   map[ids.CellID]Shard
}

// Step implements planner.Operations.
func (d *Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	if !d.pace.Due(op.ID) {
		return nil
	}
	w := &work{d: d, leader: leader, open: map[ids.CellID]Shard{}}
	defer w.close(ctx)
	began := d.Clock.Now()
	for range States() {
		if err := w.read(ctx, op.ID); err != nil {
			return err
		}
		if StateOf(w.op).Terminal() {
			return nil
		}
		err := w.bounded(ctx, d.cfg.ShardTimeout-d.Clock.Now().Sub(began))
		if errors.Is(err, errMore) {
			return w.waits(ctx, err.Error())
		}
		if err != nil {
			d.pace.Postpone(op.ID)
			return w.failed(ctx, err)
		}
	}
	return nil
}

// read reads the operation and its two cells, linearizably.
func (w *work) read(ctx context.Context, id string) (err error) {
	if w.op, err = w.d.Store.Operation(ctx, id); err != nil || w.op.State.Terminal() {
		return err
	}
	if w.from, err = w.d.Store.Cell(ctx, w.op.Handover.From); err == nil {
		w.to, err = w.d.Store.Cell(ctx, w.op.Handover.To)
	}
	return err
}

// bounded leaves time to say why a shard was waited for.
func (w *work) bounded(ctx context.Context, left time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return w.advance(ctx)
}

// advance does what is due until its outcome is stored.
func (w *work) advance(ctx context.Context) error {
	switch effect := Due(StateOf(w.op)); effect {
	case WriteMoving:
		return w.order(ctx)
	case CloseBuckets:
		return w.closes(ctx)
	case CarryPages:
		return w.carry(ctx)
	case OpenBuckets:
		return w.opens(ctx)
	case TurnRoute:
		return w.turn(ctx)
	default:
		return fmt.Errorf("%w: handover %s in %s has nothing to do", core.ErrBroken, w.op.ID, StateOf(w.op))
	}
}

var (
	// errMore: pages are left; the next call goes on.
	errMore = errors.New("on its way")
	// errNotYet: it has to wait, and nothing is wrong.
	errNotYet = errors.New("waits")
	// errMismatch: the giver's shard closed other buckets than the route moves. Nobody
	// sells to them before somebody has found out why.
	errMismatch = errors.New("shard and route differ about the giver's buckets")
)

// final are the refusals of an order that no later try changes.
var final = []error{
	core.ErrNothingToMove, core.ErrVersion, core.ErrMoveLimit, core.ErrUnknownDomain, core.ErrCampaignState,
	core.ErrUnknownCampaign, core.ErrUnknownCell, core.ErrNotTakingPart, core.ErrTooLarge,
}

// failed stores why the operation does not get on. Before anything has happened a
// refusal that no later try changes ends it, and so does the loss of the giver before
// its pages were carried.
func (w *work) failed(ctx context.Context, cause error) error {
	if errors.Is(cause, core.ErrNotLeader) || errors.Is(cause, core.ErrStoreUnavailable) || errors.Is(cause, core.ErrUnknownOutcome) || errors.Is(cause, core.ErrOperationState) || ctx.Err() != nil {
		if errors.Is(cause, core.ErrOperationState) {
			return nil // it has ended meanwhile
		}
		return cause // the next leader or the next tick goes on; the records say where
	}
	state := StateOf(w.op)
	if state == Asked {
		for _, refusal := range final {
			if errors.Is(cause, refusal) {
				return w.ends(ctx, cause.Error())
			}
		}
	}
	if next, _, err := Step(state, GiverLost); err == nil && next == Ended && w.from.State == core.CellRetired {
		return w.ends(ctx, fmt.Sprintf("cell %s is gone for good and its buyers were not carried: %v", w.from.Spec.ID, cause))
	}
	if !errors.Is(cause, errNotYet) {
		w.log(ctx, slog.LevelWarn, "handover waits", "operation_waits", telemetry.Failure(cause, rpcstatus.Reason(cause), true)...)
	}
	if errors.Is(cause, fencer.ErrTwoOrders) || errors.Is(cause, errMismatch) {
		w.log(ctx, slog.LevelError, "a handover met what must not be; nobody sells to its users until somebody has looked", "handover_stopped",
			telemetry.Failure(cause, rpcstatus.Reason(cause), false)...)
	}
	return w.waits(ctx, cause.Error())
}

// next is the step that is due, as the record names it.
func (w *work) next() string {
	for _, e := range Events() {
		if name := stepOf[e]; name != "" && !w.op.DoneStep(name) {
			return name
		}
	}
	return ""
}

// waits says in the operation why it waits, or how far it is.
func (w *work) waits(ctx context.Context, detail string) error {
	if step := w.next(); w.op.Step != step || w.op.Detail != detail {
		return w.store(ctx, "wait", func(_ *store.Tx, op core.Operation) (core.Operation, error) { return op.Waits(step, detail), nil })
	}
	return nil
}

// ends gives the operation up.
func (w *work) ends(ctx context.Context, why string) error {
	return w.store(ctx, "end", func(tx *store.Tx, op core.Operation) (core.Operation, error) {
		return op.End(core.OperationFailed, why, tx.Now()), nil
	})
}

// happened stores an outcome: the table says what it makes of the operation. middle
// may put more in the same transaction; nil: nothing.
func (w *work) happened(ctx context.Context, e Event, detail string, middle func(tx *store.Tx, op core.Operation) (core.Operation, error)) error {
	err := w.store(ctx, stepOf[e], func(tx *store.Tx, op core.Operation) (core.Operation, error) {
		before := StateOf(op)
		next, _, err := Step(before, e)
		if err != nil || next == before {
			return op, err // stored by a try whose answer was lost, or by another driver
		}
		if middle != nil {
			if op, err = middle(tx, op); err != nil {
				return op, err
			}
		}
		op = op.Finished(stepOf[e], detail, stepOf[e+1], tx.Now())
		if next == Turned {
			op = op.End(core.OperationDone, detail, tx.Now())
		}
		return op, nil
	})
	if err == nil {
		w.log(ctx, slog.LevelInfo, "handover: "+stepOf[e], "operation_step", "detail", detail)
	}
	return err
}

// store writes the operation as edit makes it, under this lead. core.ErrOperationState
// when it has ended.
func (w *work) store(ctx context.Context, verb string, edit func(tx *store.Tx, op core.Operation) (core.Operation, error)) error {
	_, err := w.d.Store.Update(ctx, "handover "+verb+" "+w.op.ID, func(tx *store.Tx) error {
		if err := tx.Lead(w.leader); err != nil {
			return err
		}
		op, known, err := tx.Operation(w.op.ID)
		if err != nil {
			return err
		}
		if !known || op.State.Terminal() {
			return w.op.Refuses("it has ended meanwhile")
		}
		next, err := edit(tx, op)
		if err != nil {
			return err
		}
		return tx.PutOperation(next)
	})
	return err
}

func (w *work) log(ctx context.Context, level slog.Level, text, event string, more ...any) {
	w.d.Log.Log(ctx, level, text, append([]any{
		telemetry.Event, event, telemetry.CampaignID, w.op.Subject, telemetry.CellID, string(w.op.Handover.From), "to_cell_id", string(w.op.Handover.To),
		"operation_id", w.op.ID, "kind", w.op.Kind, "state", StateOf(w.op).String(),
	}, more...)...)
}
