package verify

import (
	"cmp"
	"context"
	"iter"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
)

// judgeBuyers checks I4 over all shards: every shard streams its orders in the order of (user, scope),
// the streams are merged, and neighbours with one key are two orders of one user.
func (v *Verifier) judgeBuyers(ctx context.Context, t *tally, cut Cut) {
	orders := 0
	for _, c := range cut.Campaigns {
		if c.State == core.CampaignDraft {
			continue
		}
		orders += v.judgeCampaignBuyers(ctx, t, cut.Cells, c)
	}
	t.says(I4, "%d orders over %d shards, one per user and scope", orders, len(cut.Cells))
}

func (v *Verifier) judgeCampaignBuyers(ctx context.Context, t *tally, cells []core.Cell, c core.Campaign) int {
	var streams []*stream
	defer func() {
		for _, s := range streams {
			s.close(ctx)
		}
	}()
	for _, cell := range cells {
		snapshot, err := v.reader.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
		if err != nil {
			t.miss("cell "+string(cell.Spec.ID), err.Error(), I4)
			continue
		}
		s := &stream{cell: string(cell.Spec.ID), snapshot: snapshot}
		s.next, s.stop = iter.Pull2(snapshot.Orders(ctx, string(c.Spec.ID), c.Spec.Scope == core.ScopeSKU))
		streams = append(streams, s)
		s.advance(t)
	}
	seen := 0
	var last shards.Order
	lastCell := ""
	for s := smallest(streams); s != nil; s = smallest(streams) {
		o := s.head
		if seen > 0 && o.User == last.User && o.Scope == last.Scope {
			t.breach(I4, string(c.Spec.ID), o.Scope, s.cell, "user %q has order %s in cell %s and %s in cell %s", o.User, last.ID, lastCell, o.ID, s.cell)
		}
		last, lastCell = o, s.cell
		seen++
		s.advance(t)
	}
	return seen
}

// stream is one shard's orders with the next one at hand.
type stream struct {
	cell     string
	snapshot *shards.Snapshot
	next     func() (shards.Order, error, bool)
	stop     func()
	head     shards.Order
	live     bool
}

func (s *stream) advance(t *tally) {
	o, err, ok := s.next()
	s.live = ok && err == nil
	s.head = o
	if err != nil {
		t.miss("cell "+s.cell, err.Error(), I4)
	}
}

func (s *stream) close(ctx context.Context) {
	s.stop()
	s.snapshot.Close(ctx)
}

// smallest is the stream whose next order comes first, or nil when all have ended.
func smallest(streams []*stream) *stream {
	var first *stream
	for _, s := range streams {
		if s.live && (first == nil || cmp.Or(cmp.Compare(s.head.User, first.head.User), cmp.Compare(s.head.Scope, first.head.Scope)) < 0) {
			first = s
		}
	}
	return first
}
