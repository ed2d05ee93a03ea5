package entries_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/entries"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// store answers with the user's name as the entry's id. It holds its first transaction until released.
type store struct {
	mu      sync.Mutex
	sizes   []int
	held    chan struct{}
	entered chan struct{}
}

func (s *store) AddEntries(ctx context.Context, asks []shard.EntryAsk) ([]shard.EntryResult, error) {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(asks))
	first := len(s.sizes) == 1
	s.mu.Unlock()
	if first {
		close(s.entered)
		select {
		case <-s.held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	out := make([]shard.EntryResult, len(asks))
	for i, a := range asks {
		if a.User == "bad" {
			return nil, shard.ErrBadData
		}
		out[i] = shard.EntryResult{Outcome: shard.EntryAdded, Entry: shard.Entry{ID: ids.EntryID(a.User)}}
	}
	return out, nil
}

// While one transaction is under way, those who come share the next one; each is told his own, and data
// that the database refuses answers for itself alone.
func TestEntriesThatArriveTogetherShareATransaction(t *testing.T) {
	s := &store{held: make(chan struct{}), entered: make(chan struct{})}
	d := entries.New(s, entries.Config{Batch: 100, Queue: 64, Timeout: time.Minute})
	ctx, stop := context.WithCancel(testkit.Deadline(t))
	var ran sync.WaitGroup
	ran.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { stop(); ran.Wait() })

	var callers sync.WaitGroup
	ask := func(user string) {
		r, err := d.Enter(ctx, shard.EntryAsk{User: ids.UserID(user)})
		if user == "bad" {
			if !errors.Is(err, shard.ErrBadData) {
				t.Errorf("bad data: %+v, %v", r, err)
			}
			return
		}
		if err != nil || r.Entry.ID != ids.EntryID(user) {
			t.Errorf("%s was told %+v, %v", user, r, err)
		}
	}
	callers.Go(func() { ask("first") })
	<-s.entered
	for i := range 63 {
		callers.Go(func() { ask(fmt.Sprintf("u%02d", i)) })
	}
	callers.Go(func() { ask("bad") })
	testkit.Eventually(t, time.Minute, func() error {
		if n := d.Waiting(); n != 64 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	if _, err := d.Enter(ctx, shard.EntryAsk{User: "one too many"}); !errors.Is(err, entries.ErrQueueFull) {
		t.Errorf("a full queue took one more: %v", err)
	}
	close(s.held)
	callers.Wait()
	if len(s.sizes) > 2+2*7 || s.sizes[1] != 64 {
		t.Errorf("65 entries in %d transactions: %v", len(s.sizes), s.sizes)
	}
}

// A desk that stops answers whoever waits, and never hangs.
func TestADeskThatStopsAnswers(t *testing.T) {
	s := &store{held: make(chan struct{}), entered: make(chan struct{})}
	close(s.held)
	d := entries.New(s, entries.Config{})
	ctx, stop := context.WithCancel(testkit.Deadline(t))
	stop()
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enter(testkit.Deadline(t), shard.EntryAsk{User: "ann"}); !errors.Is(err, shard.ErrUnavailable) {
		t.Errorf("nobody works: %v", err)
	}
}
