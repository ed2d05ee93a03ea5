package reclaim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/secretfile"
)

// Shard is one connection to a cell's shard under the fencer's role.
// fencer.Fencer implements it; the errors are its own.
type Shard interface {
	RaiseTerm(ctx context.Context, term fencing.Term) error
	Fence(ctx context.Context, cell string, version fencing.Version, reason string) (fencing.Proof, error)
	Restore(ctx context.Context, cell string, version fencing.Version, group, reason string) error
	Activate(ctx context.Context, cell string, version fencing.Version, reason string) error
	Row(ctx context.Context) (fencer.Row, error)
	Preview(ctx context.Context) ([]fencing.SKUFacts, error)
	Unfinished(ctx context.Context, campaigns []string) (fencer.Unfinished, error)
	Adjustments(ctx context.Context, sku fencing.SKU, after string, limit int) ([]fencing.Applied, error)
	Witness(ctx context.Context) (fencing.Witness, error)
	RecoverBegin(ctx context.Context, cell string, version fencing.Version, group, reason string, to fencer.RecoverTo) error
	RecoverAdjustment(ctx context.Context, cell string, version fencing.Version, a fencing.Lost) (missing int64, err error)
	RecoverMessages(ctx context.Context, cell string, version fencing.Version) error
	RecoverFinish(ctx context.Context, cell string, version fencing.Version) (unread int, err error)
	Close(ctx context.Context) error
}

// Shards opens shards.
type Shards interface {
	// Open connects to the shard of a cell. fencer.ErrUnreachable.
	Open(ctx context.Context, spec core.CellSpec) (Shard, error)
}

// Files opens shards by the cells' fencer_dsn_file.
type Files struct {
	// LockTimeout is how long writers may finish before the fence ends their
	// backends; 0: the fencer's default.
	LockTimeout time.Duration
	// Encrypted refuses an address without sslmode=verify-full also on loopback.
	Encrypted bool
}

// Open implements Shards.
func (f Files) Open(ctx context.Context, spec core.CellSpec) (Shard, error) {
	return f.Fencer(ctx, spec)
}

// Fencer opens a shard with everything that the fencer can do.
func (f Files) Fencer(ctx context.Context, spec core.CellSpec) (*fencer.Fencer, error) {
	dsn, err := secretfile.Read(ctx, spec.Shard.FencerDSNFile)
	if err != nil {
		return nil, fmt.Errorf("shard.fencer_dsn_file of cell %s: %w: %s", spec.ID, fencer.ErrUnreachable, secretfile.Class(err))
	}
	return fencer.Open(ctx, strings.TrimSpace(string(dsn)), fencer.Options{LockWait: f.LockTimeout, Encrypted: f.Encrypted})
}

// lookWithin bounds one look at a shard for a hello.
const lookWithin = 5 * time.Second

// Look reads how far a cell's shard came. fencer.ErrUnreachable. It implements link.Shards.
func (f Files) Look(ctx context.Context, spec core.CellSpec) (fencing.Witness, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	shard, err := f.Fencer(ctx, spec)
	if err != nil {
		return fencing.Witness{}, err
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	return shard.Witness(ctx)
}

// Install writes a new cell's fence row and gives the version that stands; a
// repeat changes nothing. Errors are sentinels of rpcstatus.
func (f Files) Install(ctx context.Context, spec core.CellSpec) (int64, error) {
	shard, err := f.Fencer(ctx, spec)
	if err != nil {
		return 0, outward(err)
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	version, err := shard.Install(ctx, string(spec.ID), spec.InstanceGroup)
	return version.Int64(), outward(err)
}

// Held gives the version of the cell's fence row where the spec's fencer is sent.
// Errors are sentinels of rpcstatus.
func (f Files) Held(ctx context.Context, spec core.CellSpec) (int64, error) {
	shard, err := f.Fencer(ctx, spec)
	if err != nil {
		return 0, outward(err)
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	row, err := shard.Row(ctx)
	switch {
	case err != nil:
		return 0, outward(err)
	case row.Cell != string(spec.ID):
		return 0, fmt.Errorf("%w: the shard there is cell %s's", rpcstatus.ErrFailedPrecondition, row.Cell)
	}
	return row.Version.Int64(), nil
}

// outward gives a fencer's error to callers of the API.
func outward(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fencer.ErrOtherCell), errors.Is(err, fencer.ErrVersionRefused), errors.Is(err, fencer.ErrStateRefused), errors.Is(err, fencer.ErrTermRefused):
		return fmt.Errorf("%w: %w", rpcstatus.ErrFailedPrecondition, err)
	case errors.Is(err, fencer.ErrUnknownOutcome):
		return fmt.Errorf("%w: %w", rpcstatus.ErrUnknownOutcome, err)
	default:
		return fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	}
}
