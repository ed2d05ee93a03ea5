package store

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// listing is what one look at all of etcd has of books, and what explains that a
// book is not there: a campaign that was deleted, a publish that was given up, a
// value that cannot be read.
type listing struct {
	books      map[core.BookKey]core.Book
	records    map[string]bool
	deleted    map[ids.CampaignID]bool
	campaigns  map[ids.CampaignID]core.Campaign
	unreadable map[core.BookKey]bool
	cluster    cluster
	blurred    bool // the record of the cluster cannot be read
}

// judged are the kinds that a listing is made of.
var judged = map[Kind]bool{KindRestored: true, KindBook: true, KindRecord: true, KindTombstone: true, KindCampaign: true, KindCluster: true}

func listed(k keys, entries []Entry) listing {
	l := listing{
		books: map[core.BookKey]core.Book{}, records: map[string]bool{}, deleted: map[ids.CampaignID]bool{},
		campaigns: map[ids.CampaignID]core.Campaign{}, unreadable: map[core.BookKey]bool{},
	}
	for _, e := range entries {
		if e.Err != nil && e.Kind == KindBook {
			l.unreadable[k.bookOf(e.Key)] = true
		}
		l.blurred = l.blurred || e.Err != nil && e.Kind == KindCluster
		switch v := e.Value.(type) {
		case core.Book:
			l.books[v.Key] = v
		case core.Record:
			l.records[v.ID] = true
		case core.Tombstone:
			l.deleted[v.Campaign] = true
		case core.Campaign:
			l.campaigns[v.Spec.ID] = v
		case cluster:
			l.cluster = v
		}
	}
	return l
}

// explains tells whether a book may be gone, or be another one, without etcd
// having lost its past. A publish that was given up took its books back, and a
// repeat opened them anew, both under the record of the publish.
func (l listing) explains(key core.BookKey, n newest, b core.Book, found bool) bool {
	if l.unreadable[key] || l.deleted[key.Campaign] {
		return true
	}
	opened := core.PublishRecordID(key)
	if n.record != opened {
		return false
	}
	if found {
		return b.Version >= n.version && b.ModRevision > n.mod // opened again, and perhaps moved since
	}
	c, known := l.campaigns[key.Campaign]
	return known && (c.State == core.CampaignDraft || c.State == core.CampaignPublishing)
}

// Survey reads every mirrored key at one revision, as List does, for those who
// only look: what this process remembers of etcd is not touched by it. Their
// listing may be older than a deletion that the watch has brought since.
func (s *Store) Survey(ctx context.Context, add func([]Entry) error) (int64, error) {
	s.choose(ctx)
	revision := int64(0)
	for _, kind := range Mirrored() {
		if err := s.listRoom(ctx, kind, &revision, add); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// Intact reads all of etcd and compares it with what this process saw, once the
// watch has brought everything up to then. ErrRestored: a book is not as it was
// seen; the loss is latched.
func (s *Store) Intact(ctx context.Context) error {
	var kept []Entry
	revision, err := s.Survey(ctx, func(page []Entry) error {
		for _, e := range page {
			if judged[e.Kind] {
				kept = append(kept, e)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	if why := s.past.missing(listed(s.keys, kept), revision); why != "" {
		return s.past.lose("%s", why)
	}
	if why := s.past.loss(); why != "" {
		return core.Restored{Why: why, FoundBy: "this replica"}.Refuses()
	}
	return nil
}
