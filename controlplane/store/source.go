package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/clock"
)

// ErrCompacted: the revision asked for is no longer in etcd's history; list again.
var ErrCompacted = errors.New("revision is compacted")

// pageSize bounds one answer of a listing.
const pageSize = 500

// List reads every mirrored key at one revision, page by page, and gives that
// revision. The entries of a page are handed to add as they come. It is the
// mirror's: what this process remembers of etcd is compared with the listing and
// follows it, and Watch goes on from there. Others call Survey.
func (s *Store) List(ctx context.Context, add func([]Entry) error) (int64, error) {
	var kept []Entry
	revision, err := s.Survey(ctx, func(page []Entry) error {
		for _, e := range page {
			if judged[e.Kind] {
				kept = append(kept, e)
			}
		}
		return add(page)
	})
	if err != nil {
		return 0, err
	}
	if err := s.listRoom(ctx, KindCluster, &revision, func(page []Entry) error { kept = append(kept, page...); return nil }); err != nil {
		return 0, err
	}
	s.past.list(kept, revision)
	return revision, nil
}

func (s *Store) listRoom(ctx context.Context, kind Kind, revision *int64, add func([]Entry) error) error {
	room := s.keys.room(kind)
	end := clientv3.GetPrefixRangeEnd(room)
	if kind.single() {
		end = room + "\x00"
	}
	from := room
	for {
		page, err := s.page(ctx, from, end, *revision)
		if err != nil {
			return err
		}
		if *revision == 0 {
			*revision = page.Header.Revision
		}
		entries := make([]Entry, len(page.Kvs))
		for i, kv := range page.Kvs {
			entries[i] = s.entry(kv)
		}
		if err := add(entries); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		from = entries[len(entries)-1].Key + "\x00"
	}
}

func (s *Store) page(ctx context.Context, from, end string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	page, err := s.kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil, fmt.Errorf("list from %s: %w", from, ErrCompacted)
	}
	return page, readError("list from "+from, err)
}

// Batch is what one answer of the watch brings: changes, or only the news that
// everything up to Revision was delivered.
type Batch struct {
	Revision int64
	Entries  []Entry
}

// Watch delivers every change of ours from a revision on, in order, until ctx
// ends or the watch fails; then it gives the reason, never nil. With no change
// for some time it asks etcd how far it is, so that Revision goes on. A member
// without a leader ends the watch instead of keeping it silent, and so does one that
// answers nothing.
func (s *Store) Watch(ctx context.Context, from int64, deliver func(Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A stream of its own: the client would put this watch on the stream of one before,
	// which may still wait for the member that said nothing.
	ctx = metadata.AppendToOutgoingContext(ctx, "cellquota-watch", strconv.FormatInt(s.watches.Add(1), 10))
	quiet := s.clock.NewTicker(progressEvery)
	defer quiet.Stop()
	watch, err := s.begin(ctx, cancel, from, quiet)
	if err != nil {
		return err
	}
	quietFor, unheard, looks, lost := 0, 0, 0, s.past.loss()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet.C():
			if unheard++; unheard > silentAfter {
				return fmt.Errorf("watch: no answer to %d questions how far it is", silentAfter)
			}
			if looks++; looks%lookEvery == 0 && s.leftOut() {
				s.choose(ctx)
			}
			if quietFor++; quietFor%headEvery == 0 && unheard == 1 { // the watch answers
				s.judgeHead(ctx)
			}
			if why := s.past.loss(); why != lost {
				return fmt.Errorf("watch: %w: %s", core.ErrRestored, why)
			}
			if err := s.client.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
				return fmt.Errorf("watch: ask for progress: %v", err) //nolint:errorlint // driver errors end here
			}
		case resp, open := <-watch:
			if err := watchError(resp, open); err != nil {
				return err
			}
			unheard = 0
			batch := Batch{Revision: resp.Header.Revision}
			for _, ev := range resp.Events {
				batch.Entries = append(batch.Entries, s.changed(ev))
			}
			s.past.take(batch.Entries)
			s.past.deliveredUpTo(batch.Revision)
			if err := deliver(batch); err != nil {
				return err
			}
			if len(batch.Entries) > 0 {
				quietFor = 0
			}
		}
	}
}

// begin makes the watch, within the time in which a made one would be found
// silent: the client waits for the member's word that it watches, for as long as
// the connection lives.
func (s *Store) begin(ctx context.Context, cancel context.CancelFunc, from int64, tick clock.Ticker) (clientv3.WatchChan, error) {
	made := make(chan clientv3.WatchChan, 1)
	go func() { // ends with ctx
		made <- s.client.Watch(clientv3.WithRequireLeader(ctx), s.keys.prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithProgressNotify())
	}()
	for range silentAfter + 1 {
		select {
		case watch := <-made:
			return watch, nil
		case <-tick.C():
		}
	}
	cancel()
	<-made
	return nil, fmt.Errorf("watch: not begun after %s", (silentAfter+1)*progressEvery)
}

// judgeHead asks how far etcd is, only to judge the answer's revision. Bounded by
// one pace of the watch: a member that says nothing must not hide that the watch
// says nothing either.
func (s *Store) judgeHead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, progressEvery)
	defer cancel()
	_, _ = s.Head(ctx)
}

// progressEvery is how often a quiet watch is asked how far it is.
const progressEvery = 500 * time.Millisecond

// silentAfter is how many of those questions may stay unanswered: a member that is
// frozen or cut off keeps the watch and says nothing, for ever (K40).
const silentAfter = 5

// lookEvery is after how many ticks members that are left out are looked for again.
const lookEvery = 40

// headEvery is after how many quiet ticks etcd's revision is read linearizably: a
// watch from a revision that an etcd restored from a backup has not reached is
// silent for ever, and its progress says nothing.
const headEvery = 4

func watchError(resp clientv3.WatchResponse, open bool) error {
	switch {
	case !open:
		return errors.New("watch: channel closed")
	case resp.CompactRevision != 0:
		return fmt.Errorf("watch: %w: history begins at %d", ErrCompacted, resp.CompactRevision)
	case resp.Err() != nil:
		return fmt.Errorf("watch: %v", resp.Err()) //nolint:errorlint // driver errors end here
	}
	return nil
}

func (s *Store) changed(ev *clientv3.Event) Entry {
	if ev.Type == clientv3.EventTypeDelete {
		e := Entry{Key: string(ev.Kv.Key), Deleted: true, ModRevision: ev.Kv.ModRevision}
		e.Kind = s.keys.kind(e.Key)
		return e
	}
	return s.entry(ev.Kv)
}

// Key gives the whole key of a record: a kind and its name within the folder.
func (s *Store) Key(kind Kind, name string) string { return s.keys.room(kind) + name }
