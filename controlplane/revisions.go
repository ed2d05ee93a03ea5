package controlplane

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// behindFor is how long a call waits for the view to come to the revision that its
// caller has seen; then another replica may do better.
const behindFor = 2 * time.Second

// revisions answers no caller from a view that is older than what the same caller was
// told before, by whatever replica: a read after a fail-over shows the write before it.
// Every answer says how far the view is. While etcd is known to have lost its past its
// revisions begin lower, and nobody is held up by one of the past.
func revisions(v *view.View, s *store.Store) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := comeTo(ctx, v, s, minRevision(ctx)); err != nil {
			return nil, err
		}
		out, err := handle(ctx, req)
		_ = grpc.SetHeader(ctx, metadata.Pairs(client.RevisionHeader, strconv.FormatInt(v.Snapshot().Revision(), 10))) // a stream that is gone needs none
		return out, err
	}
}

func minRevision(ctx context.Context) int64 {
	values := metadata.ValueFromIncomingContext(ctx, client.MinRevisionHeader)
	if len(values) == 0 {
		return 0
	}
	least, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return 0
	}
	return least
}

func comeTo(ctx context.Context, v *view.View, s *store.Store, least int64) error {
	now := v.Snapshot()
	_, restored := now.Restored()
	if now.Revision() >= least || restored || s.Lost() != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, behindFor)
	defer cancel()
	if _, err := v.WaitFor(ctx, least); err != nil {
		return fmt.Errorf("%w: this replica's view is at revision %d, and its caller has seen %d; ask another", rpcstatus.ErrUnavailable, v.Snapshot().Revision(), least)
	}
	return nil
}
