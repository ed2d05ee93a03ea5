package cell

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	callers    = 512   // that wait for OrderService at once
	roundSteps = 4_096 // payments or closings of ours, in each pair
)

// BenchmarkPayments: successes of the payment channel per second at OrderService of one
// process, against the same statements in a transaction for each payment.
func BenchmarkPayments(b *testing.B) {
	benchmarkSteps(b, "PAID", func(ctx context.Context, orders pb.OrderServiceClient, o placed) error {
		out, err := orders.ApplyPaymentCallback(ctx, &pb.ApplyPaymentCallbackRequest{
			PaymentId: "p1", OrderId: string(o.order), Amount: &pb.Money{Amount: "4999.00", Currency: "CNY"}, Status: pb.CallbackStatus_CALLBACK_STATUS_SUCCEEDED,
		})
		if err == nil && out.GetOrderState() != pb.OrderState_ORDER_STATE_PAID {
			err = fmt.Errorf("order %v", out)
		}
		return err
	})
}

// BenchmarkClosings: the same for orders that are cancelled by their users.
func BenchmarkClosings(b *testing.B) {
	benchmarkSteps(b, "CLOSED", func(ctx context.Context, orders pb.OrderServiceClient, o placed) error {
		out, err := orders.CancelOrder(ctx, &pb.CancelOrderRequest{OrderId: string(o.order), UserId: string(o.user)})
		if err == nil && out.GetOrder().GetState() != pb.OrderState_ORDER_STATE_CLOSED {
			err = fmt.Errorf("order %v", out)
		}
		return err
	})
}

func benchmarkSteps(b *testing.B, state string, step func(context.Context, pb.OrderServiceClient, placed) error) {
	b.Helper()
	s := newSales(b)
	s.exec("CREATE SCHEMA bench")
	s.exec("CREATE SEQUENCE bench.next")
	s.exec("CREATE TABLE bench.todo (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text, reservation_id text)")
	s.exec("GRANT USAGE ON SCHEMA bench TO cellquota_app")
	s.exec("GRANT ALL ON ALL TABLES IN SCHEMA bench TO cellquota_app")
	s.exec("GRANT ALL ON ALL SEQUENCES IN SCHEMA bench TO cellquota_app")
	p := s.start(append([]string{"--roles=reconcile"}, calm...)...).ready()
	s.todo(s.place(8 * orderBatch))
	script := stepScript(b, state, s.payload())
	clients := s.best(b, script)
	testkit.Against(b, "pgbench", 10, func(int) float64 {
		return s.steps(p, s.place(roundSteps), step)
	}, func(int) float64 {
		s.todo(s.place(2 * orderBatch))
		return s.pgbench(script, 1, clients, 2*orderBatch/clients*clients)
	})
	b.ReportMetric(float64(clients), "clients")
	b.ReportMetric(float64(s.pg.FsyncLatency(b).Microseconds()), "fsync-µs")
}

// placed is an order that waits for its payment.
type placed struct {
	order ids.OrderID
	user  ids.UserID
}

// place makes orders, a batch at a time.
func (s *sales) place(n int) []placed {
	s.b.Helper()
	at := shard.Position{Topic: "pgbench", Partition: 63, Next: int64(s.users)}
	s.exec("UPDATE cellquota.positions SET next_offset = $1 WHERE topic = 'pgbench' AND partition = 63", at.Next)
	now := clock.System().Now()
	price, err := reservation.ParseMoney("4999.00", "CNY")
	s.must(err)
	var out []placed
	for len(out) < n {
		batch := shard.Batch{From: at, To: at.Next + orderBatch}
		for range orderBatch {
			m := admitted(s.users, now)
			batch.Messages = append(batch.Messages, shard.Message{Offset: int64(s.users), Admission: reservation.Admission{
				Reservation: ids.ReservationID(m.GetReservationId()), Request: ids.RequestID(m.GetRequestId()), Campaign: campaign, SKU: phone,
				User: ids.UserID(m.GetUserId()), Quantity: 1, Build: ids.Build{Fence: 1, Count: 1}, Fingerprint: m.GetFingerprint(), Price: price, AdmittedAt: now,
				PermitExpiresAt: now.Add(time.Hour),
			}})
			out = append(out, placed{ids.ReservationID(m.GetReservationId()).Order(), ids.UserID(m.GetUserId())})
			s.users++
		}
		_, err := s.store.ApplyOrders(s.ctx, batch)
		s.must(err)
		at.Next = batch.To
	}
	return out
}

// todo gives orders to pgbench.
func (s *sales) todo(list []placed) {
	s.b.Helper()
	orders := make([]string, len(list))
	for i, o := range list {
		orders[i] = string(o.order)
	}
	s.exec("INSERT INTO bench.todo (order_id, reservation_id) SELECT order_id, reservation_id FROM cellquota.orders WHERE order_id = ANY($1)", orders)
}

// steps lets many callers take one step for each order and returns steps per second.
func (s *sales) steps(p *process, list []placed, step func(context.Context, pb.OrderServiceClient, placed) error) float64 {
	s.b.Helper()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	stored, worked, began := s.pg.CPU(s.b), testkit.OwnCPU(s.b), clock.System().Now()
	for range callers {
		wait.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(list); i = next.Add(1) - 1 {
				ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
				err := step(ctx, p.client.Orders, list[i])
				cancel()
				if err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wait.Wait()
	took := clock.System().Now().Sub(began)
	if err := failed.Load(); err != nil {
		s.b.Fatal(*err)
	}
	n := float64(len(list))
	s.b.Logf("processor for one: %.1f µs here, %.1f µs in PostgreSQL", (testkit.OwnCPU(s.b)-worked).Seconds()/n*1e6, (s.pg.CPU(s.b)-stored).Seconds()/n*1e6)
	return n / took.Seconds()
}
