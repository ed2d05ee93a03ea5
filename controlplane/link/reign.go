package link

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// reign is one leadership with its streams. It is dropped with it.
type reign struct {
	ctx    context.Context //nolint:containedctx // a leadership is a context that ends
	leader core.Leader
	events Events
	wg     sync.WaitGroup

	mu      sync.Mutex
	streams map[uint64]*stream
	cells   map[ids.CellID]*cellDesk
}

// cellDesk is what is known of one cell under this leadership.
type cellDesk struct {
	reporter *stream
	streams  []*stream // ascending by id
	usages   map[core.BookKey]Usage
	// confirmed is when the last report came, over the stream confirmedBy: what was
	// told before over that stream still stood then.
	confirmed   time.Time
	confirmedBy uint64
	// seen is the highest that was seen of its shard; unwritten: not in etcd yet.
	seen      fencing.Witness
	unwritten bool
}

func newReign(ctx context.Context, leader core.Leader, events Events) *reign {
	return &reign{ctx: ctx, leader: leader, events: events, streams: map[uint64]*stream{}, cells: map[ids.CellID]*cellDesk{}}
}

func (r *reign) desk(cell ids.CellID) *cellDesk {
	d, ok := r.cells[cell]
	if !ok {
		d = &cellDesk{usages: map[core.BookKey]Usage{}}
		r.cells[cell] = d
	}
	return d
}

// add takes a registered stream in; an older one of the same process goes.
func (r *reign) add(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.desk(s.cell)
	for _, old := range slices.Clone(d.streams) {
		if old.instance.ID == s.instance.ID {
			old.cut(errReplaced)
			r.forget(old)
		}
	}
	r.streams[s.id] = s
	d.streams = append(d.streams, s)
	slices.SortFunc(d.streams, byID)
}

func (r *reign) remove(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(s)
}

// forget drops a stream; another one of the cell that claims to report takes its
// place at its next keep-alive.
func (r *reign) forget(s *stream) {
	delete(r.streams, s.id)
	d := r.cells[s.cell]
	if d == nil {
		return
	}
	d.streams = slices.DeleteFunc(d.streams, func(other *stream) bool { return other == s })
	if d.reporter == s {
		d.reporter = nil
	}
}

// claim notes whether a process says that it holds the reporter lock. It tells
// whether the process became the reporter by this. The newest claim wins: the
// lock is the shard's, and the one that lost it may not know yet.
func (r *reign) claim(s *stream, claims bool) (became bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams[s.id] != s {
		return false
	}
	first := claims && !s.claims
	s.claims = claims
	d := r.desk(s.cell)
	switch {
	case !claims && d.reporter == s:
		d.reporter = nil
	case claims && d.reporter != s && (first || d.reporter == nil):
		d.reporter = s
		return true
	}
	return false
}

func (r *reign) reporter(cell ids.CellID) *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.cells[cell]; d != nil {
		return d.reporter
	}
	return nil
}

func (r *reign) isReporter(s *stream) bool { return r.reporter(s.cell) == s }

// all gives the streams in order of their ids.
func (r *reign) all() []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*stream, 0, len(r.streams))
	for _, s := range r.streams {
		out = append(out, s)
	}
	slices.SortFunc(out, byID)
	return out
}

func byID(a, b *stream) int { return cmp.Compare(a.id, b.id) }

// of gives one cell's streams in order of their ids, without a look at those of the
// others: it is asked for every cell of a campaign.
func (r *reign) of(cell ids.CellID) []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.cells[cell]; d != nil {
		return slices.Clone(d.streams)
	}
	return nil
}

func (s *stream) asReporter() planner.Reporter {
	return planner.Reporter{Instance: s.instance.ID, Stream: s.id, FenceVersion: s.fenceVersion}
}
