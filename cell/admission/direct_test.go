package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// deskShard is the shard's side, scripted: it refuses users named "bad", may be held up, and remembers
// the transactions that it was asked for.
type deskShard struct {
	admission.DirectStore
	mu      sync.Mutex
	batches [][]ids.UserID
	hold    chan struct{} // nil: answers at once
	err     error
	result  shard.DirectResult
}

func (d *deskShard) ApplyDirect(ctx context.Context, asks []shard.DirectAsk) ([]shard.DirectResult, error) {
	d.mu.Lock()
	var users []ids.UserID
	seen := map[ids.UserID]bool{}
	bad := false
	for _, a := range asks {
		if seen[a.User] {
			panic("a user stands twice in a batch")
		}
		seen[a.User] = true
		bad = bad || a.User == "bad"
		users = append(users, a.User)
	}
	d.batches = append(d.batches, users)
	hold, err, result := d.hold, d.err, d.result
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", shard.ErrUnknownCommit, ctx.Err())
		}
	}
	if bad {
		return nil, shard.ErrBadData
	}
	out := make([]shard.DirectResult, len(asks))
	for i := range out {
		out[i] = result
	}
	return out, err
}

func newDesk(t *testing.T, cfg admission.DirectConfig, s *deskShard) *admission.Direct {
	t.Helper()
	d := admission.NewDirect(s, cfg, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return d
}

func wishes(users ...string) []admission.Ask {
	out := make([]admission.Ask, len(users))
	for i, u := range users {
		out[i] = admission.Ask{Scope: admission.Scope{Campaign: "c"}, SKU: "s", User: ids.UserID(u), Request: "r", Quantity: 1}
	}
	return out
}

// Every outcome of the shard has one of the mirror's, and none is left over.
func TestDirectOutcomesAreAllTold(t *testing.T) {
	for _, o := range shard.DirectOutcomes() {
		d := newDesk(t, admission.DirectConfig{}, &deskShard{result: shard.DirectResult{Outcome: o}})
		if r := d.Admit(t.Context(), wishes("u"))[0]; r.Outcome == admission.Undecided || r.Err != nil {
			t.Errorf("outcome %d of the shard is told as %s (%v)", o, r.Outcome, r.Err)
		}
	}
	for reason, want := range map[reservation.Reason]admission.Outcome{
		reservation.AlreadyReserved: admission.AlreadyReserved, reservation.AlreadyPurchased: admission.AlreadyPurchased, reservation.OrderWasClosed: admission.OrderClosed,
	} {
		row := shard.RequestRow{Found: true, Outcome: shard.Ordered, Order: "cell-1.oa", OrderState: reservation.OrderPaid, Request: "other"}
		d := newDesk(t, admission.DirectConfig{}, &deskShard{result: shard.DirectResult{Outcome: shard.DirectHeld, Reason: reason, Row: row}})
		r := d.Admit(t.Context(), wishes("u"))[0]
		if r.Outcome != want || r.Request != "other" || r.State != cellquotav1.RequestState_REQUEST_STATE_PAID {
			t.Errorf("%s: %+v", reason, r)
		}
	}
}

// Those who come while a transaction runs share the next one; a user's second ask waits for the one
// after; beyond the queue they are told QUEUE_FULL.
func TestDirectSharesTransactions(t *testing.T) {
	s := &deskShard{hold: make(chan struct{}), result: shard.DirectResult{Outcome: shard.DirectOrdered}}
	d := newDesk(t, admission.DirectConfig{Batch: 3, Queue: 6, Timeout: time.Minute}, s)
	var wg sync.WaitGroup
	ask := func(users ...string) {
		wg.Go(func() {
			for _, r := range d.Admit(t.Context(), wishes(users...)) {
				if r.Outcome != admission.Accepted {
					t.Errorf("%v: %+v", users, r)
				}
			}
		})
	}
	ask("first")
	testkit.Eventually(t, 10*time.Second, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.batches) == 0 {
			return errors.New("nothing was asked for yet")
		}
		return nil
	})
	wg.Go(func() {
		for i, r := range d.Admit(t.Context(), wishes("a", "a", "b", "c", "d", "a", "late")) {
			if want := []admission.Outcome{admission.Accepted, admission.QueueFull}[i/6]; r.Outcome != want {
				t.Errorf("ask %d: %+v, want %s", i, r, want)
			}
		}
	})
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := d.Waiting(); n != 6 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	close(s.hold)
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := fmt.Sprint(s.batches); got != "[[first] [a b c] [a d] [a]]" {
		t.Errorf("transactions %s", got)
	}
}

// Whoever was told PAUSED while it waited gets no order afterwards.
func TestDirectOrdersForNobodyWhoLeft(t *testing.T) {
	s := &deskShard{hold: make(chan struct{}), result: shard.DirectResult{Outcome: shard.DirectOrdered}}
	d := newDesk(t, admission.DirectConfig{Timeout: time.Minute}, s)
	began := func(n int) func() error {
		return func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.batches) < n {
				return fmt.Errorf("%d transactions", len(s.batches))
			}
			return nil
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { d.Admit(t.Context(), wishes("first")) })
	testkit.Eventually(t, 10*time.Second, began(1))
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if r := d.Admit(short, wishes("left"))[0]; r.Outcome != admission.Paused {
		t.Fatalf("%+v", r)
	}
	wg.Go(func() { d.Admit(t.Context(), wishes("stays")) })
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := d.Waiting(); n != 2 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	close(s.hold)
	testkit.Eventually(t, 10*time.Second, began(2))
	wg.Wait()
	if got := fmt.Sprint(s.batches); got != "[[first] [stays]]" {
		t.Errorf("transactions %s", got)
	}
}

// What the shard says instead of deciding: data it refuses answers for itself alone, and no fault is
// told as a word about stock.
func TestDirectFaults(t *testing.T) {
	s := &deskShard{result: shard.DirectResult{Outcome: shard.DirectOrdered}}
	d := newDesk(t, admission.DirectConfig{}, s)
	got := d.Admit(t.Context(), wishes("a", "bad", "c", "d"))
	for i, r := range got {
		if (i == 1) != (r.Outcome == admission.NotReady && errors.Is(r.Err, shard.ErrBadData) && !errors.Is(r.Err, admission.ErrInvalidAsk)) || (i != 1) != (r.Outcome == admission.Accepted) {
			t.Errorf("ask %d: %+v", i, r)
		}
	}
	for err, want := range map[error]admission.Outcome{
		shard.ErrFenced: admission.Fenced, shard.ErrState: admission.Fenced, shard.ErrNoWriter: admission.Fenced,
		shard.ErrUnavailable: admission.Paused, shard.ErrUnknownCommit: admission.Paused, shard.ErrShardBehind: admission.NotReady,
	} {
		d := newDesk(t, admission.DirectConfig{}, &deskShard{err: err})
		if r := d.Admit(t.Context(), wishes("u"))[0]; r.Outcome != want {
			t.Errorf("%v: %+v, want %s", err, r, want)
		}
	}
	slow := newDesk(t, admission.DirectConfig{Timeout: 50 * time.Millisecond}, &deskShard{hold: make(chan struct{})})
	if r := slow.Admit(t.Context(), wishes("u"))[0]; r.Outcome != admission.Paused || !errors.Is(r.Err, shard.ErrUnavailable) && !errors.Is(r.Err, shard.ErrUnknownCommit) {
		t.Errorf("too late: %+v", r)
	}
	if r := d.Admit(t.Context(), []admission.Ask{{Scope: admission.Scope{Campaign: "c"}, SKU: "s", User: "u", Request: "r"}})[0]; !errors.Is(r.Err, admission.ErrInvalidAsk) {
		t.Errorf("no quantity: %+v", r)
	}
}
