package client

import (
	"context"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/cellquota/cellquota/internal/clock"
)

// The words by which a client reads its own writes, whichever replica answers: an
// answer says how far its replica's view of etcd was, and a call asks for a view that
// has come as far (house pattern: WaitFor(revision)).
const (
	// RevisionHeader is in the header of every unary answer: etcd's revision that the
	// replica's view had reached, at least the call's own change.
	RevisionHeader = "cellquota-revision"
	// MinRevisionHeader asks that a call be answered from a view of at least this
	// revision. A replica whose view does not come there soon answers UNAVAILABLE.
	MinRevisionHeader = "cellquota-min-revision"
)

// remembered is how long a revision is asked for: by then every view that lives has
// come there, and one that has not says how old it is. It also bounds what an etcd
// restored from a backup, whose revisions begin lower, can hold up.
const remembered = 10 * time.Second

// revision is the highest that an answer told, and when.
type revision struct {
	clock clock.Clock
	mu    sync.Mutex
	seen  int64
	at    time.Time
}

// ask adds what a call must at least be answered from.
func (r *revision) ask(ctx context.Context) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == 0 || r.clock.Now().Sub(r.at) > remembered {
		r.seen = 0
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, MinRevisionHeader, strconv.FormatInt(r.seen, 10))
}

// told takes the header of an answer over.
func (r *revision) told(header metadata.MD) {
	values := header.Get(RevisionHeader)
	if len(values) == 0 {
		return
	}
	seen, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || seen <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen > r.seen {
		r.seen, r.at = seen, r.clock.Now()
	}
}
