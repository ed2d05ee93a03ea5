package intent

import (
	"context"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Shards is the fencer's side of provisioning.
type Shards interface {
	// Install makes the cell's shard this cell's: fence version 1, ACTIVE, under the
	// spec's group. A repeat gives the version that stands. Errors are sentinels of
	// core or rpcstatus.
	Install(ctx context.Context, spec core.CellSpec) (fenceVersion int64, err error)
	// Held gives the version of the cell's fence row in the shard that the spec's
	// fencer reaches. rpcstatus.ErrFailedPrecondition: the shard has none, or is
	// another cell's; ErrUnavailable: it does not answer. Nothing is changed.
	Held(ctx context.Context, spec core.CellSpec) (fenceVersion int64, err error)
}

// Topics is Kafka's side of provisioning.
type Topics interface {
	// Ensure creates the cell's topic with its partitions and replication. One that
	// is there with the same partitions is fine.
	Ensure(ctx context.Context, spec core.KafkaSpec) error
}

// Caller is who asks, and by which method.
type Caller struct {
	Name   string
	Method string
	// Issuers minted the token that was shown, nearest first; empty for an operator
	// of the file.
	Issuers []string
	// Any: the caller may abort what others asked for while it waits for approval.
	Any bool
}

func (c Caller) audit(operationID, subject, reason string) core.Audit {
	return core.Audit{Actor: c.Name, Method: c.Method, OperationID: operationID, Subject: subject, Reason: reason}
}

// Service carries the verbs. Safe for concurrent use.
type Service struct {
	Store  *store.Store
	View   *view.View
	Clock  clock.Clock
	Shards Shards
	Topics Topics
	// Sales tells what a campaign's shards hold; nil: refusals go without figures.
	Sales Sales
	// ApprovalTTL is how long an approval waits for a decision; 0: 24 h.
	ApprovalTTL time.Duration
	// Encrypted refuses cells whose stores would be reached in plain text also on
	// loopback: whatever runs without dev. Another machine's always are.
	Encrypted bool
}

// CellFaults gives every broken rule of a spec that is to be stored, with its path.
func (s *Service) CellFaults(spec core.CellSpec) []rpcstatus.Violation {
	return append(spec.Check(), spec.Encrypted(!s.Encrypted)...)
}

// visible waits until the view holds what was just written, so that the caller's
// next read sees it; a view that is late does not make the write fail.
func (s *Service) visible(ctx context.Context, revision int64) {
	if revision > 0 {
		_, _ = s.View.WaitFor(ctx, revision)
	}
}
