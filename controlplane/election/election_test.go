package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/election"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

const wait = 20 * time.Second

// replica is one candidate that remembers its leaderships.
type replica struct {
	*election.Election
	store *store.Store
	stop  func()

	mu    sync.Mutex
	terms []core.Leader
	over  int
	fail  error // what lead returns at once
}

func (r *replica) lead(ctx context.Context, l core.Leader) error {
	r.mu.Lock()
	r.terms = append(r.terms, l)
	fail := r.fail
	r.fail = nil
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.over++
		r.mu.Unlock()
	}()
	if fail != nil {
		return fail
	}
	<-ctx.Done()
	return ctx.Err()
}

func (r *replica) state() (begun, over int, last core.Leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.terms) > 0 {
		last = r.terms[len(r.terms)-1]
	}
	return len(r.terms), r.over, last
}

// leads waits until the replica is in its n-th leadership.
func (r *replica) leads(t *testing.T, n int) core.Leader {
	t.Helper()
	testkit.Eventually(t, wait, func() error {
		begun, over, _ := r.state()
		if _, now := r.Current(); begun != n || over != n-1 || !now {
			return fmt.Errorf("begun %d, over %d, leads %v", begun, over, now)
		}
		return nil
	})
	_, _, last := r.state()
	return last
}

func start(t *testing.T, etcd *testkit.EtcdCluster, addr string) *replica {
	t.Helper()
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota", Timeout: 500 * time.Millisecond}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	v, err := view.New(s, view.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{store: s}
	r.Election = election.New(election.Config{Address: addr, TTL: time.Second}, s, v, clock.System(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = v.Run(ctx) })
	elected := make(chan error, 1)
	go func() { elected <- r.Run(ctx, r.lead) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-elected; err != nil {
				t.Errorf("run: %v", err)
			}
			wg.Wait()
			_ = s.Close()
		})
	}
	t.Cleanup(r.stop)
	return r
}

// One leads; when it stops, the other follows at once, under the next term, and
// the first one's guard is worthless.
func TestHandOver(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	a := start(t, etcd, "a:1")
	first := a.leads(t, 1)
	b := start(t, etcd, "b:1")
	a.stop()
	if _, leads := a.Current(); leads {
		t.Error("a stopped replica says that it leads")
	}
	second := b.leads(t, 1)
	if second.Term.Count != first.Term.Count+1 || second.Term.ID == first.Term.ID || second.Address != "b:1" {
		t.Errorf("first %+v, second %+v", first, second)
	}
	_, err := b.store.Update(testkit.Deadline(t), "old guard", func(tx *store.Tx) error { return tx.Lead(first) })
	if !errors.Is(err, core.ErrNotLeader) {
		t.Errorf("the old leader's guard: %v", err)
	}
}

// The lease vanishes under a leader: its loops end, and it may lead again later.
func TestALostLeaseEndsTheLoops(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	a := start(t, etcd, "a:1")
	first := a.leads(t, 1)
	if _, err := etcd.Client(t).Revoke(testkit.Deadline(t), leaseOf(t, etcd)); err != nil {
		t.Fatal(err)
	}
	if again := a.leads(t, 2); again.Term.Count <= first.Term.Count {
		t.Errorf("term %d after term %d", again.Term.Count, first.Term.Count)
	}
}

// The key is deleted by hand while the lease lives: the loops end too.
func TestADeletedKeyEndsTheLoops(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	a := start(t, etcd, "a:1")
	first := a.leads(t, 1)
	if _, err := etcd.Client(t).Delete(testkit.Deadline(t), "/cellquota/leader"); err != nil {
		t.Fatal(err)
	}
	if again := a.leads(t, 2); again.Term.Count != first.Term.Count+1 {
		t.Errorf("term %d after term %d", again.Term.Count, first.Term.Count)
	}
}

// etcd is gone: the loops end before the lease does, and begin again when it is back.
func TestEtcdGone(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	a := start(t, etcd, "a:1")
	a.leads(t, 1)
	etcd.Stop(t, 0)
	testkit.Eventually(t, wait, func() error {
		if _, over, _ := a.state(); over != 1 {
			return errors.New("the loops run on without etcd")
		}
		return nil
	})
	etcd.Start(t, 0)
	a.leads(t, 2)
}

// leaseOf finds the leader's lease.
func leaseOf(t *testing.T, etcd *testkit.EtcdCluster) clientv3.LeaseID {
	t.Helper()
	got, err := etcd.Client(t).Get(testkit.Deadline(t), "/cellquota/leader")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("leader: %v, %v", got, err)
	}
	return clientv3.LeaseID(got.Kvs[0].Lease)
}

// An error of the loops gives the lead up; the replica tries again.
func TestAnErrorOfTheLoopsGivesUp(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	a := start(t, etcd, "a:1")
	a.leads(t, 1)
	a.mu.Lock()
	a.fail = errors.New("broken")
	a.mu.Unlock()
	if _, err := etcd.Client(t).Revoke(testkit.Deadline(t), leaseOf(t, etcd)); err != nil {
		t.Fatal(err)
	}
	a.leads(t, 3)
}
