package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/books"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

const (
	sampleEvery = 100 * time.Millisecond
	// maxLooks bounds what the witness remembers: half an hour of samples.
	maxLooks = 18_000
	// maxKept bounds the breaches that are told one by one.
	maxKept = 50
)

// look is what one sample saw of the SKU.
type look struct {
	at      time.Time
	limit   int64
	reserve int64
	shards  map[ids.CellID]shards.Stock
}

// sold is what is reserved or confirmed, over the cells that pass.
func (l look) sold(pass func(ids.CellID) bool) (units int64) {
	for cell, s := range l.shards {
		if pass(cell) {
			units += s.Reserved + s.Confirmed
		}
	}
	return units
}

func (l look) granted(pass func(ids.CellID) bool) (units int64) {
	for cell, s := range l.shards {
		if pass(cell) {
			units += s.Granted
		}
	}
	return units
}

func every(ids.CellID) bool { return true }

func but(cell ids.CellID) func(ids.CellID) bool {
	return func(c ids.CellID) bool { return c != cell }
}

// Testimony is what the witness saw over the whole demo.
type Testimony struct {
	// Samples taken, and how many could not be (etcd did not answer).
	Samples int64  `json:"samples"`
	Missed  int64  `json:"missed"`
	LastErr string `json:"last_error,omitempty"`
	// Exact counts samples at which reserve + granted over the shards was the limit.
	Exact int64 `json:"exact"`
	// Revisions is how many changes of books were checked, each at its own etcd revision.
	Revisions int64 `json:"revisions"`
	// Unchecked counts shards that did not answer in a sample.
	Unchecked int64 `json:"unchecked"`
	// Breaches in all, and the first of them in words.
	Breaches int64    `json:"breaches"`
	First    []string `json:"first_breaches"`

	broken map[verify.Invariant]int64
}

// witness samples every shard and etcd until it is stopped.
type witness struct {
	clk     clock.Clock
	store   *store.Store
	reader  *shards.Reader
	sampler *verify.Sampler
	key     core.BookKey

	mu      sync.Mutex
	looks   []look
	news    chan struct{} // closed and replaced at each look
	said    Testimony
	cancel  context.CancelFunc
	members sync.WaitGroup
}

// call starts a witness for one SKU whose campaign counts orders by SKU.
func call(ctx context.Context, clk clock.Clock, etcd []string, key core.BookKey) (*witness, error) {
	s, err := store.Open(store.Config{Endpoints: etcd, Prefix: "/cellquota"}, store.Deps{Clock: clk})
	if err != nil {
		return nil, err
	}
	w := &witness{clk: clk, store: s, reader: shards.New(shards.Options{Timeout: 3 * time.Second}), key: key, news: make(chan struct{})}
	w.said.broken, w.said.First = map[verify.Invariant]int64{}, []string{}
	w.sampler = verify.NewSampler(books.Plane{Store: s}, w.reader, key.Campaign, true)
	ctx, w.cancel = context.WithCancel(ctx)
	w.members.Go(func() { w.sample(ctx) })
	w.members.Go(func() { w.followBooks(ctx) })
	return w, nil
}

// dismiss ends the witness and answers what it saw.
func (w *witness) dismiss() Testimony {
	w.cancel()
	w.members.Wait()
	w.reader.Close()
	_ = w.store.Close() // nothing is under way any more
	return w.said
}

func (w *witness) sample(ctx context.Context) {
	tick := w.clk.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		s, err := w.sampler.Sample(ctx)
		if ctx.Err() != nil {
			return // it was cut off, not missed
		}
		w.note(s, err)
	}
}

func (w *witness) note(s verify.Sample, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.said.Missed++
		w.said.LastErr = err.Error()
		return
	}
	w.said.Samples++
	w.said.Unchecked += int64(len(s.Unchecked))
	if s.Exact[w.key] {
		w.said.Exact++
	}
	for _, b := range s.Breaches {
		w.accuse(b.Invariant, fmt.Sprintf("%s %s: %s", b.Invariant, b.Cell, b.Detail))
	}
	l := look{at: w.clk.Now(), shards: map[ids.CellID]shards.Stock{}}
	for _, b := range s.Books {
		if b.Key == w.key {
			l.limit, l.reserve = b.SaleLimit.Int64(), b.Reserve.Int64()
		}
	}
	for cell, rows := range s.Shards {
		l.shards[cell] = rows[w.key]
	}
	if len(w.looks) == maxLooks {
		w.looks = w.looks[1:]
	}
	w.looks = append(w.looks, l)
	close(w.news)
	w.news = make(chan struct{})
}

// accuse counts a breach; the caller holds the lock.
func (w *witness) accuse(i verify.Invariant, words string) {
	w.said.Breaches++
	w.said.broken[i]++
	if len(w.said.First) < maxKept {
		w.said.First = append(w.said.First, words)
	}
}

// followBooks checks I1 at every revision: the watch delivers each change of a book, not only the last.
func (w *witness) followBooks(ctx context.Context) {
	from := int64(0)
	for ctx.Err() == nil {
		if from == 0 {
			cut, err := books.Plane{Store: w.store}.Cut(ctx, w.key.Campaign)
			if err != nil {
				_ = w.clk.Sleep(ctx, sampleEvery) // the loop asks ctx
				continue
			}
			from = cut.Revision + 1
		}
		_ = w.store.Watch(ctx, from, func(b store.Batch) error { // a watch that broke goes on where it was
			for _, e := range b.Entries {
				w.noteEntry(e)
			}
			from = b.Revision + 1
			return nil
		})
		_ = w.clk.Sleep(ctx, sampleEvery) // the loop asks ctx
	}
}

func (w *witness) noteEntry(e store.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b, isBook := e.Value.(core.Book); {
	case e.Kind == store.KindBook && e.Err != nil: // decoding checks the book's own law
		w.said.Revisions++
		w.accuse(verify.I1, fmt.Sprintf("I1 at revision %d: %v", e.ModRevision, e.Err))
	case isBook && b.Key == w.key:
		w.said.Revisions++
		if err := b.Check(); err != nil {
			w.accuse(verify.I1, fmt.Sprintf("I1 at revision %d: %v", e.ModRevision, err))
		}
	}
}

// newest is the last look; the zero look before the first.
func (w *witness) newest() look {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.looks) == 0 {
		return look{}
	}
	return w.looks[len(w.looks)-1]
}

// firstSince is the first look at or after t that passes.
func (w *witness) firstSince(t time.Time, pass func(look) bool) (look, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.looks {
		if !l.at.Before(t) && pass(l) {
			return l, true
		}
	}
	return look{}, false
}

// await waits for a look that passes, limit at most; false when the time ran out or ctx ended.
func (w *witness) await(ctx context.Context, limit time.Duration, pass func(look) bool) (look, bool) {
	late := w.clk.NewTimer(limit)
	defer late.Stop()
	for {
		w.mu.Lock()
		news := w.news
		w.mu.Unlock()
		if l := w.newest(); !l.at.IsZero() && pass(l) {
			return l, true
		}
		select {
		case <-news:
		case <-late.C():
			return w.newest(), false
		case <-ctx.Done():
			return w.newest(), false
		}
	}
}
