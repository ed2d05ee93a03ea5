package cell

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestCancelStorm is K68: thousands of callers give up after 10 ms while the shard holds every read of an
// order up. What they gave up is taken back from the server too: its sessions never exceed the process's
// pool by more than those that are just ending, and the cell sells and answers within seconds afterwards.
func TestCancelStorm(t *testing.T) {
	const calls, callers, slack = 2000, 50, 5
	w, p := selling(t, 5)
	order := p.reaches("alice", "r1", want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest().GetReceipt(), pending).GetOrderId()
	pool := int64(p.parts.cfg.Shard.MaxConns)

	tx, err := w.admin.Begin(w.ctx)
	w.must(err)
	_, err = tx.Exec(w.ctx, "LOCK TABLE cellquota.orders IN ACCESS EXCLUSIVE MODE")
	w.must(err)
	watch, end := context.WithCancel(w.ctx)
	sessions := w.mostSessions(watch)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls / callers {
				ctx, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
				_, _ = p.client.Orders.GetOrder(ctx, &pb.GetOrderRequest{OrderId: order, UserId: "alice"})
				cancel()
			}
		})
	}
	all.Wait()
	end()
	most := <-sessions
	w.must(tx.Rollback(w.ctx))
	from := time.Now()
	t.Logf("%d sessions at most, the pool is of %d", most, pool)
	if most > pool+slack {
		t.Errorf("%d sessions of the cell, its pool is of %d", most, pool)
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		o, err := p.client.Orders.GetOrder(w.ctx, &pb.GetOrderRequest{OrderId: order, UserId: "alice"})
		if err == nil && o.GetOrder().GetState() != pb.OrderState_ORDER_STATE_PENDING_PAYMENT {
			err = fmt.Errorf("order %v", o)
		}
		return err
	})
	p.stocked(4)
	got := want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	p.reaches("bob", "r1", got.GetReceipt(), pending)
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("the cell needed %s to recover", took)
	}
}

// mostSessions counts the cell's sessions on the server until ctx ends, and gives the most it saw.
func (w *world) mostSessions(ctx context.Context) <-chan int64 {
	conn := w.db.Conn(w.t)
	out := make(chan int64, 1)
	go func() {
		var most int64
		for ctx.Err() == nil {
			var now int64
			if err := conn.QueryRow(w.ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'cellquota_app' AND datname = current_database()").Scan(&now); err != nil {
				w.t.Error(err)
				break
			}
			most = max(most, now)
		}
		out <- most
	}()
	return out
}
