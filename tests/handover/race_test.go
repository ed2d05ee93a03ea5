package handover_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// buyer is one customer, who repeats his one request until an answer is final.
type buyer struct {
	user  ids.UserID
	final shard.Decision
}

// TestBuyersRaceADriver: customers ask both homes, each under his own request id and
// over and over, while a driver that dies again and again moves half of a cell's buckets
// there and back. Nobody has two orders (I4), and nobody is lost: MOVED is not final,
// and whoever was told nothing else has his order at the end.
func TestBuyersRaceADriver(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 10_000)
	var stop atomic.Bool
	var asked atomic.Int64
	var sellers sync.WaitGroup
	crowds := map[ids.CellID][]*buyer{}
	for n := range 40 {
		for _, id := range []ids.CellID{"cell-a", "cell-b"} { // the same people ask both
			crowds[id] = append(crowds[id], &buyer{user: userIn(n, 0, 2047)})
		}
	}
	failed := make(chan error, 2)
	for id, crowd := range crowds {
		c := w.cells[id]
		sellers.Go(func() {
			for round := 0; !stop.Load(); round++ {
				// A few at a time come for the first time, so that people buy at every moment.
				var batch []shard.Message
				var of []*buyer
				for _, b := range crowd[:min(len(crowd), 4+round)] {
					if b.final.Outcome == "" || b.final.Reason == reservation.Moved {
						batch, of = append(batch, c.ask(b.user, ids.RequestID("r-"+string(id)))), append(of, b)
					}
				}
				asked.Add(1)
				if len(batch) == 0 {
					continue
				}
				decisions, err := c.apply(batch...)
				if err != nil {
					failed <- err
					return
				}
				for i, d := range decisions {
					of[i].final = d
				}
			}
		})
	}
	for n, from := range []ids.CellID{"cell-a", "cell-b", "cell-a"} {
		to := map[ids.CellID]ids.CellID{"cell-a": "cell-b", "cell-b": "cell-a"}[from]
		id := fmt.Sprint("h", n)
		w.ask(request(id, from, to, 0, 1023))
		for effect := 1; effect < 4; effect++ {
			if !w.live(id, effect, effect%2 == 0) {
				break
			}
			w.lead()
		}
		w.done(id)
	}
	testkit.Eventually(t, patience, func() error {
		if n := asked.Load(); n < 40 {
			return fmt.Errorf("only %d rounds", n)
		}
		return nil
	})
	stop.Store(true)
	sellers.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	w.onePerUser()
	for n := range 40 { // nobody is lost: at home now he has, or gets, his one order
		user := userIn(n, 0, 2047)
		home := w.home(user)
		d := home.decide(user, "last")
		if d.Outcome != shard.Ordered && d.Reason != reservation.AlreadyReserved {
			t.Errorf("%s at %s: %+v", user, home.id, d)
		}
	}
	if n := w.onePerUser(); n != 40 {
		t.Errorf("%d orders of 40 people", n)
	}
}

// onePerUser counts the orders of both shards, each user's at most one.
func (w *world) onePerUser() int {
	w.t.Helper()
	at := map[string]ids.CellID{}
	for id, c := range w.cells {
		rows, err := c.admin.Query(c.ctx, "SELECT user_id FROM cellquota.v_orders")
		c.must(err)
		for rows.Next() {
			var user string
			c.must(rows.Scan(&user))
			if other, twice := at[user]; twice {
				w.t.Errorf("%s has an order in %s and in %s (I4)", user, other, id)
			}
			at[user] = id
		}
		c.must(rows.Err())
	}
	return len(at)
}
