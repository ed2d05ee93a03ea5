package closer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// books is a channel that knows payments by their order; about an order that it does not hold it says
// nothing. Asked about one attempt it never heard of it, as one would whose id was lost.
type books struct {
	silent
	of map[ids.OrderID][]provider.Found
}

func (b books) Inquire(context.Context, ids.OrderID, ids.PaymentID) (provider.Answer, error) {
	return provider.Answer{Status: provider.None}, nil
}

func (b books) InquireOrder(_ context.Context, o ids.OrderID) ([]provider.Found, error) {
	found, known := b.of[o]
	if !known {
		return nil, errors.New("no such question")
	}
	return found, nil
}

// TestARecoveredOrderIsAskedAboutByItsOrder: the attempts of an order may have been lost with their ids. One
// that was paid by a payment that nobody here knows is PAID by it; only a whole list without money closes it.
func TestARecoveredOrderIsAskedAboutByItsOrder(t *testing.T) {
	b := newBench(t, 6)
	b.Exec("SELECT cellquota.recover_begin($1, 2, $2, 1, '[]', '[]', '[]', 'test', 1000)", string(shardtest.Cell), shardtest.Group)
	b.Store.SetWriter(shard.Writer{FenceVersion: 2, Group: shardtest.Group})
	cheap, _ := reservation.ParseMoney("1.00", "EUR")
	found := func(id ids.PaymentID, status provider.Status, m reservation.Money) provider.Found {
		return provider.Found{Payment: id, Answer: provider.Answer{Status: status, Amount: m}}
	}
	none := reservation.Money{}
	channel := books{of: map[ids.OrderID][]provider.Found{
		b.order[0]: {found("pay-76", provider.Failed, none), found("pay-77", provider.Succeeded, shardtest.Price)},
		b.order[1]: {},
		b.order[2]: {found("pay-1", provider.Failed, none), found("pay-2", provider.Unknown, none)},
		b.order[4]: {found("pay-3", provider.Failed, none), found("pay-4", provider.Refunded, shardtest.Price)},
		b.order[5]: {found("pay-5", provider.Succeeded, shardtest.Price), found("pay-6", provider.Succeeded, cheap)},
	}}
	l, _ := b.loop(b.Store, channel, clock.System())
	b.Advance(65 * time.Second)
	b.Must(b.Store.Heartbeat(b.Ctx))
	if err := l.Round(b.Ctx); !errors.Is(err, shard.ErrState) {
		t.Errorf("a payment was booked while the shard is being recovered: %v", err)
	}
	if n := b.Count("orders WHERE state = 'PAID'"); n != 0 {
		t.Errorf("%d orders are paid before the recovery ended", n)
	}
	b.Advance(6 * time.Second)
	b.Must(ignore(l.Round(b.Ctx), shard.ErrState))
	if n := b.Count("orders WHERE state = 'CLOSED'"); n != 2 {
		t.Errorf("payments that wait held up closings: %d are closed, want the two without money", n)
	}
	b.Exec("SELECT cellquota.recover_messages($1, 2)", string(shardtest.Cell))
	b.Exec("SELECT cellquota.recover_finish($1, 2)", string(shardtest.Cell))
	for range 4 {
		b.Advance(6 * time.Second)
		b.Must(l.Round(b.Ctx))
	}
	for i, want := range []string{
		"PAID/CONFIRMED *recovery=FAILED pay-77=SUCCEEDED",
		"CLOSED/RELEASED *recovery=FAILED",
		"PENDING_PAYMENT/MANUAL_REVIEW *recovery=UNKNOWN",
		"PENDING_PAYMENT/MANUAL_REVIEW *recovery=UNKNOWN",
		"CLOSED/RELEASED *recovery=FAILED",
		"PAID/CONFIRMED *recovery=FAILED pay-5=SUCCEEDED pay-6=MISMATCH",
	} {
		var got string
		b.Must(b.Admin.QueryRow(b.Ctx, `SELECT o.state || '/' || r.state || ' ' ||
			(SELECT string_agg(payment_id || '=' || state, ' ' ORDER BY payment_id) FROM cellquota.payments p WHERE p.order_id = o.order_id)
			FROM cellquota.orders o JOIN cellquota.reservations r USING (reservation_id) WHERE order_id = $1`, string(b.order[i])).Scan(&got))
		if got != want {
			t.Errorf("order %d is %s, want %s", i, got, want)
		}
	}
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}
