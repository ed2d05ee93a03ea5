package reclaim

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Config of a Driver; zero values have the default in brackets.
type Config struct {
	// RetryInterval is the pause before a step that failed is tried again [1s].
	RetryInterval time.Duration
	// CloseGrace is how long a restored shard only settles [2s].
	CloseGrace time.Duration
	// ShardTimeout bounds one call to a shard, its connection included [15s].
	ShardTimeout time.Duration
}

// Driver carries operations on for the leader.
type Driver struct {
	cfg    Config
	store  *store.Store
	view   *view.View
	shards Shards
	clock  clock.Clock
	log    *slog.Logger

	pace *operation.Pace
}

var _ planner.Operations = (*Driver)(nil)

// New makes a driver.
func New(cfg Config, s *store.Store, v *view.View, shards Shards, c clock.Clock, log *slog.Logger) *Driver {
	def := func(d *time.Duration, fallback time.Duration) {
		if *d <= 0 {
			*d = fallback
		}
	}
	def(&cfg.RetryInterval, time.Second)
	def(&cfg.CloseGrace, 2*time.Second)
	def(&cfg.ShardTimeout, 15*time.Second)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Driver{cfg: cfg, store: s, view: v, shards: shards, clock: c, log: log, pace: operation.NewPace(c, cfg.RetryInterval)}
}

// maxSteps bounds one call of Step; what is left is done in the next.
const maxSteps = 256

// work is an operation as its records say it stands.
type work struct {
	leader  core.Leader
	op      core.Operation
	cell    core.Cell
	reclaim fencing.Reclaim
	proof   fencing.Proof // of the standing fence; while FENCING as the shard just gave it
	// fencedAt is when the shard was fenced, by its clock; set with a fresh proof.
	fencedAt time.Time
	// attested is whose word a write-off stands on, once it is stored.
	attested fencing.Attestation
	// step names the present step where the machine's state does not.
	step string
	// recovering is the step of a recovery, for a cell whose shard went back in time; "": none.
	recovering string
}

// errNotYet: the step has to wait, and nothing is wrong.
var errNotYet = errors.New("not yet")

// Step implements planner.Operations.
func (d *Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	if !d.pace.Due(op.ID) {
		return nil
	}
	for range maxSteps {
		w, err := d.resume(ctx, leader, op.ID)
		if err != nil {
			return err
		}
		if w.op.State.Terminal() {
			return nil
		}
		err = d.advance(ctx, w)
		if err != nil {
			d.pace.Postpone(op.ID)
			return d.wait(ctx, w, err)
		}
	}
	return nil
}

// advance carries out what is due until one outcome is stored; then the records
// are read again. At rest, the operation is done.
func (d *Driver) advance(ctx context.Context, w *work) error {
	switch w.op.Kind {
	case core.OperationWriteOff:
		return d.advanceWriteOff(ctx, w)
	case core.OperationRetire:
		return d.advanceRetire(ctx, w)
	}
	if w.recovering != "" {
		return d.advanceRecovery(ctx, w)
	}
	if w.reclaim.State >= fencing.Reclaimed && w.cell.State == core.CellFenced && !w.cell.Reclaimed {
		return d.writeReclaimed(ctx, w)
	}
	due := w.reclaim.Due()
	for i, e := range due {
		stored, err := d.carryOut(ctx, w, e)
		if err != nil || stored && !alike(due, i) {
			return err
		}
	}
	return d.finish(ctx, w)
}

// alike tells whether the effect behind this one is of another SKU of the same reclaim:
// each stands on its own book, so that records of a thousand are not read a thousand
// times. Bounded, for what is left is found again from the records.
func alike(due []fencing.Effect, i int) bool {
	return i+1 < min(len(due), maxSteps) && due[i].Kind == due[i+1].Kind && (due[i].Kind == fencing.BookReclaim || due[i].Kind == fencing.BookWriteOff)
}

// carryOut does one effect and tells whether its outcome is stored. An effect
// whose outcome a record shows already is not done again.
func (d *Driver) carryOut(ctx context.Context, w *work, e fencing.Effect) (stored bool, err error) {
	switch e.Kind {
	case fencing.RunStoreFence:
		return d.fence(ctx, w)
	case fencing.StoreProof:
		return true, d.storeProof(ctx, w)
	case fencing.BookReclaim:
		return true, d.book(ctx, w, keyOf(e.SKU))
	case fencing.TopUpOthers:
		return true, d.topUpOthers(ctx, w)
	case fencing.WriteRestoring:
		if w.cell.State == core.CellRestoring {
			return false, nil
		}
		return true, d.writeRestoring(ctx, w, e.Version)
	case fencing.RunRestore:
		return true, d.restore(ctx, w, e.Version)
	case fencing.AwaitSettled:
		return false, d.awaitSettled(ctx, w)
	case fencing.RunActivate:
		return false, d.activate(ctx, w, e.Version)
	case fencing.WriteActive:
		return true, d.writeActive(ctx, w)
	default:
		return false, w.op.Refuses("no driver for " + e.Kind.String())
	}
}

// wait stores why the operation does not get on. Numbers that do not come out
// end it: a retry would find the same. A write-off has no other way out of what it
// began: it waits until somebody has explained them.
func (d *Driver) wait(ctx context.Context, w *work, cause error) error {
	switch {
	case errors.Is(cause, core.ErrNotLeader), errors.Is(cause, core.ErrStoreUnavailable), errors.Is(cause, core.ErrUnknownOutcome), ctx.Err() != nil:
		return cause // the next leader or the next tick goes on; the records say where
	case w.op.Kind != core.OperationWriteOff && (errors.Is(cause, fencing.ErrProofMismatch) || errors.Is(cause, fencing.ErrProof) || errors.Is(cause, fencing.ErrStaleProof) || errors.Is(cause, fencing.ErrBook)):
		d.log.ErrorContext(ctx, "proof, book and journal do not fit; nothing of that SKU was moved", w.fields("reclaim_stopped", telemetry.Failure(cause, rpcstatus.Reason(cause), false)...)...)
		return d.end(ctx, w, core.OperationFailed, cause.Error())
	case !errors.Is(cause, errNotYet):
		d.log.WarnContext(ctx, "operation waits", w.fields("operation_waits", telemetry.Failure(cause, rpcstatus.Reason(cause), true)...)...)
	}
	step := cmp.Or(w.step, w.reclaim.State.String())
	if w.op.Step == step && w.op.Detail == cause.Error() {
		return nil
	}
	_, err := d.store.Update(ctx, "wait "+w.op.ID, func(tx *store.Tx) error {
		op, err := w.mine(tx)
		if err != nil {
			return err
		}
		return tx.PutOperation(op.Waits(step, cause.Error()))
	})
	return err
}

// mine reads the operation under this leader's lead. core.ErrOperationState when
// it has ended meanwhile.
func (w *work) mine(tx *store.Tx) (core.Operation, error) {
	if err := tx.Lead(w.leader); err != nil {
		return core.Operation{}, err
	}
	op, known, err := tx.Operation(w.op.ID)
	if err == nil && (!known || op.State.Terminal()) {
		err = w.op.Refuses("it has ended meanwhile")
	}
	return op, err
}

// move writes the cell and the operation in one transaction, if the cell is what
// this step was decided on. change gives both as they shall be; the cell's version
// grows by one.
func (d *Driver) move(ctx context.Context, w *work, verb string, change func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error)) error {
	_, err := d.store.Update(ctx, verb+" "+w.op.ID, func(tx *store.Tx) error {
		op, err := w.mine(tx)
		if err != nil {
			return err
		}
		cell, err := w.owned(tx)
		if err != nil {
			return err
		}
		next, op, err := change(tx, cell, op)
		if err != nil {
			return err
		}
		next.Version = cell.Version + 1
		return errors.Join(tx.PutCell(next), tx.PutOperation(op), tx.Audit(core.Audit{
			Actor: op.Actor, Method: verb, OperationID: op.ID, Subject: "cell " + op.Subject, Reason: next.State.String() + ": " + op.Reason,
		}))
	})
	if err == nil {
		d.log.InfoContext(ctx, verb, w.fields("operation_step")...)
	}
	return err
}

// owned reads the cell, which must be as this step's decision saw it.
func (w *work) owned(tx *store.Tx) (core.Cell, error) {
	cell, known, err := tx.Cell(w.cell.Spec.ID)
	switch {
	case err != nil:
		return core.Cell{}, err
	case !known || cell.OperationID != w.op.ID || cell.Version != w.cell.Version:
		return core.Cell{}, core.VersionConflict(w.cell.Version, cell.Version)
	}
	return cell, nil
}

// finish ends an operation that has nothing left to do, and frees the cell.
func (d *Driver) finish(ctx context.Context, w *work) error {
	return d.end(ctx, w, core.OperationDone, "")
}

func (d *Driver) end(ctx context.Context, w *work, state core.OperationState, detail string) error {
	return d.move(ctx, w, "end", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		cell.OperationID = ""
		return cell, op.End(state, detail, tx.Now()), nil
	})
}

func (w *work) fields(event string, more ...any) []any {
	return append([]any{
		telemetry.Event, event, telemetry.CellID, w.op.Subject, telemetry.FenceVersion, w.cell.FenceVersion, "operation_id", w.op.ID,
		"kind", w.op.Kind, "step", cmp.Or(w.step, w.reclaim.State.String()),
	}, more...)
}
