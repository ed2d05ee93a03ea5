package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

const patience = 20 * time.Second

// kept is the ledger of the real store.
type kept struct {
	r *rig
}

func (k *kept) book() core.Book { return k.r.book() }

func (k *kept) cells() map[ids.CellID]core.Cell {
	k.r.caughtUp()
	return k.r.view.Snapshot().CellsByID()
}

func (k *kept) records() map[string]core.Record {
	k.r.caughtUp()
	out := map[string]core.Record{}
	for _, r := range k.r.view.Snapshot().Records(key.Campaign, 0, 10_000) {
		if r.ID != core.PublishRecordID(key) { // the start of the walk
			out[r.ID] = r
		}
	}
	return out
}

func (k *kept) setCell(c core.Cell) {
	k.r.cell(c.Spec.ID, func(stored *core.Cell) {
		stored.State, stored.FenceVersion, stored.ProofID, stored.Reclaimed = c.State, c.FenceVersion, c.ProofID, c.Reclaimed
	})
}

func (k *kept) move(id string, edit editOf) error {
	_, err := k.r.store.Move(testkit.Deadline(k.r.t), store.Move{RecordID: id, Parameters: "p", Key: key, Actor: "ann", Method: "walk", Leader: &k.r.leader, Edit: edit})
	return err
}

func (k *kept) answered(record, id string, outcome core.Outcome) error {
	_, err := k.r.store.Settle(testkit.Deadline(k.r.t), k.r.leader, record, id, outcome)
	return err
}

// The same walk against a real etcd, with the drivers between its steps and a new leader now and then; and
// then I1 at every revision that etcd ever had, compaction being off.
func TestWalkOverEtcd(t *testing.T) {
	r := newRig(t)
	r.sells(400, 100, 30, 30, 30)
	w := newWalk(&kept{r: r}, r.shards)
	steps := rapid.SliceOfN(actions, 60, 60)
	for seed := range 2 {
		for i, a := range steps.Example(seed + 11) {
			if err := w.do(a); err != nil {
				t.Fatalf("seed %d, after step %d, %+v: %v", seed, i, a, err)
			}
			switch i % 12 {
			case 3:
				ask := transfer(fmt.Sprintf("t%d-%d", seed, i), a.N%20+1)
				_, _, err := r.intent.TransferUnits(testkit.Deadline(t), who, ask, false)
				refusedOnly(t, err)
			case 5:
				moves := []core.RebalanceMove{move(cellID(a.Cell), cellID(a.Cell%3+1), a.N%20+1), move(cellID(a.Cell%3+1), "", a.N%7+1), move("", cellID(a.Cell), a.N%5+1)}
				_, err := r.intent.ApplyRebalance(testkit.Deadline(t), who, plan(fmt.Sprintf("b%d-%d", seed, i), nil, moves...), false)
				refusedOnly(t, err)
			case 7:
				ask := r.limit(fmt.Sprintf("l%d-%d", seed, i), a.N+40)
				_, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, ask, false)
				refusedOnly(t, err)
			case 11:
				r.lead()
			}
			if i%3 == 0 { // a leader that steps, or not
				if err := r.step(); err != nil && errors.Is(err, core.ErrBroken) {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
			if err := w.check(); err != nil {
				t.Fatalf("seed %d, after the drivers of step %d: %v", seed, i, err)
			}
		}
	}
	if n := everyRevision(t, r); n < 40 {
		t.Errorf("only %d revisions of the book", n)
	}
	moved(t, r.registry, "GRANT", "RETURN", "LIMIT")
}

func refusedOnly(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, core.ErrBroken) || errors.Is(err, core.ErrUnknownOutcome) {
		t.Fatal(err)
	}
}

// everyRevision walks etcd's history of the book: I1 at each.
func everyRevision(t *testing.T, r *rig) int {
	t.Helper()
	client := r.etcd.Client(t)
	ctx := testkit.Deadline(t)
	head, err := r.store.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for revision := int64(1); revision <= head; revision++ {
		resp, err := client.Get(ctx, "/cellquota/books/", clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			book, err := store.DecodeBook(kv.Value)
			if err == nil {
				err = book.Check()
			}
			if err != nil {
				t.Fatalf("I1 at revision %d: %v", revision, err)
			}
			seen[kv.ModRevision] = true
		}
	}
	return len(seen)
}

// moved: the walk's journal is in journal_operations_total, the book in its gauges.
func moved(t *testing.T, registry *prometheus.Registry, kinds ...string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fmt.Fprintln(&text, f.GetName(), m)
		}
	}
	for _, want := range append(kinds, "cellquota_book_reserve_units", "cellquota_book_allocated_units") {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no metric shows %s", want)
		}
	}
}

// K24: the connection to etcd is cut after a transaction was sent. The retry reads, finds its own id, and
// reports success; nothing is booked twice. The same for K23 with the caller's own retries, five in a row.
func TestK24TheAnswerOfACommitIsCut(t *testing.T) {
	r := newRig(t)
	r.sells(300, 250, 100, 100)
	wire := fault.New(t, r.etcd.Endpoint(0))
	far := &rig{t: t, etcd: r.etcd, registry: prometheus.NewRegistry()}
	far.open([]string{wire.Addr()})
	client := r.etcd.Client(t)
	for i, cut := 0, 0; cut < 5; i++ { // now and then an answer is faster than the cut
		if i == 40 {
			t.Fatalf("%d of %d answers were cut", cut, i)
		}
		id := fmt.Sprint("cut", i)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			testkit.Eventually(t, patience, func() error {
				resp, err := client.Get(t.Context(), "/cellquota/journal/"+id)
				if err == nil && len(resp.Kvs) == 0 {
					err = errors.New("not committed yet")
				}
				return err
			})
			wire.Heal() // which breaks the connection that lost the answer
		}()
		result, err := far.store.Move(testkit.Deadline(t), store.Move{
			RecordID: id, Parameters: "p", Key: key, Actor: "ann", Method: "test",
			Edit: func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
				wire.Silence(fault.ToClient)
				b, step, err := b.Grant(cells["cell-1"], q(1))
				return b, []core.Adjustment{{ID: id, Key: key, Cell: "cell-1", Kind: core.KindGrant, Units: q(1), State: core.StateBooked, Step: step}}, err
			},
		})
		<-sent
		if err != nil {
			t.Fatalf("try %d: %+v, %v", i, result, err)
		}
		if result.Replayed {
			cut++
		}
		r.has(250, 50-int64(i+1), 100+int64(i+1), 100)
	}
}
