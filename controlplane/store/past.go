package store

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cellquota/cellquota/controlplane/core"
)

// past is what this process saw of etcd, to know an etcd that was restored from a
// backup under it: the leader's key comes back with the backup, a watch from a
// later revision is silent, and counters soon look contiguous again. So it keeps,
// beside the highest revision and the cluster's id, the newest record of each
// book with the revision that created it; transactions compare them (Tx.Book).
//
// It is fed by every listing, watch and commit of this process. It grows with the
// number of books and no further.
type past struct {
	keys      keys
	mu        sync.Mutex
	cluster   uint64 // 0: not known yet
	revision  int64  // highest in an answer
	delivered int64  // up to which a listing or the watch brought everything
	books     map[core.BookKey]newest
	records   map[string]core.BookKey // the newest record of each book
	lost      string                  // why etcd is known to have lost its past; it stays until recovery
	// recovery is the term of the last recovery that was heard of (cluster.go).
	recovery      int64
	recoveryKnown bool
}

// newest is a book's newest change.
type newest struct {
	version, mod int64
	record       string
	created      int64 // revision that created the record; 0: not known
}

func newPast(k keys) *past {
	return &past{keys: k, books: map[core.BookKey]newest{}, records: map[string]core.BookKey{}}
}

func (p *past) loss() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *past) clusterID() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster
}

func (p *past) floor() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revision
}

func (p *past) reached() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delivered
}

// lose latches the first reason.
func (p *past) lose(format string, args ...any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == "" {
		p.lost = fmt.Sprintf(format, args...)
	}
	return core.Restored{Why: p.lost, FoundBy: "this replica"}.Refuses()
}

// answered judges the header of an answer to a linearizable request that was sent
// when the highest known revision was floor. What comes after is measured by the
// new etcd: the loss is latched, and reads go on.
func (p *past) answered(cluster uint64, revision, floor int64) error {
	p.mu.Lock()
	known := p.cluster
	p.cluster = cluster
	behind := revision < floor
	p.revision = max(p.revision, revision)
	if behind {
		p.revision = revision
	}
	p.mu.Unlock()
	switch {
	case known != 0 && known != cluster:
		return p.lose("etcd cluster %x answers, %x did before", cluster, known)
	case behind:
		return p.lose("etcd is at revision %d and was at %d before", revision, floor)
	}
	return nil
}

// of gives what is remembered of a book.
func (p *past) of(key core.BookKey) (newest, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := p.books[key]
	return n, known
}

// contradicts says in words how a book that etcd gives now cannot follow what was
// seen before; "": it can.
func (n newest) contradicts(b core.Book, found bool) string {
	switch {
	case !found:
		return fmt.Sprintf("the book is gone; it was at version %d, changed by %s", n.version, n.record)
	case b.Version < n.version:
		return fmt.Sprintf("the book is at version %d and was at %d, changed by %s", b.Version, n.version, n.record)
	case b.Version == n.version && (b.LastRecordID != n.record || b.ModRevision != n.mod):
		return fmt.Sprintf("version %d of the book was changed by %s at revision %d, and by %s at %d before", b.Version, b.LastRecordID, b.ModRevision, n.record, n.mod)
	}
	return ""
}

// saw takes one book over. created may be 0.
func (p *past) saw(b core.Book, created int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.books[b.Key]
	if known && old.version > b.Version {
		return
	}
	if known && old.record == b.LastRecordID && created == 0 {
		created = old.created
	}
	delete(p.records, old.record)
	p.records[b.LastRecordID] = b.Key
	p.books[b.Key] = newest{version: b.Version, mod: b.ModRevision, record: b.LastRecordID, created: created}
}

// sawRecord notes when a record was created, 0 when it was archived out of etcd;
// only the newest one of its book matters.
func (p *past) sawRecord(id string, created int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, newestOf := p.records[id]
	if n, known := p.books[key]; newestOf && known {
		n.created = created
		p.books[key] = n
	}
}

func (p *past) forget(key core.BookKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.records, p.books[key].record)
	delete(p.books, key)
}

// begin forgets everything but the cluster: the loss is written down (lost stays)
// or was recovered (lost ends), and what etcd says now counts.
func (p *past) begin(recovered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.books, p.records = map[core.BookKey]newest{}, map[string]core.BookKey{}
	if recovered {
		p.lost = ""
	}
}

func (p *past) deliveredUpTo(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivered = max(p.delivered, revision)
}

// take follows one batch of the watch.
func (p *past) take(entries []Entry) {
	for _, e := range entries {
		if c, ok := e.Value.(cluster); ok {
			_ = p.recovered(c) // latched
		}
		switch {
		case e.Kind == KindRestored:
			p.begin(e.Deleted)
		case e.Kind == KindBook && e.Deleted:
			p.forget(p.keys.bookOf(e.Key))
		case e.Kind == KindBook:
			if b, ok := e.Value.(core.Book); ok {
				p.saw(b, 0)
			}
		}
	}
	for _, e := range entries { // a record after its book, in whatever order they came
		if r, ok := e.Value.(core.Record); ok {
			p.sawRecord(r.ID, r.CreateRevision)
		} else if e.Kind == KindRecord && e.Deleted {
			p.sawRecord(strings.TrimPrefix(e.Key, p.keys.room(KindRecord)), 0)
		}
	}
}

// list compares the view's own listing with what was seen, and takes it over. A
// loss is latched; the listing stands.
func (p *past) list(entries []Entry, revision int64) {
	l := listed(p.keys, entries)
	if !l.blurred {
		_ = p.recovered(l.cluster) // before books are compared; a loss is latched
	}
	if why := p.missing(l, revision); why != "" {
		_ = p.lose("%s", why)
		p.begin(false)
	}
	p.take(entries)
	for _, b := range l.books { // settled and archived while nobody watched
		if !l.records[b.LastRecordID] {
			p.sawRecord(b.LastRecordID, 0)
		}
	}
	p.deliveredUpTo(revision)
}

// missing names a book that a listing at a revision does not have as it was seen.
func (p *past) missing(l listing, revision int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, n := range p.books {
		if n.mod > revision {
			continue // our own commit after the listing
		}
		b, ok := l.books[key]
		if why := n.contradicts(b, ok); why != "" && !l.explains(key, n, b, ok) {
			return fmt.Sprintf("%s: %s", key, why)
		}
	}
	return ""
}
