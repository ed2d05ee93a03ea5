package status

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

type mirror struct{ result admission.Result }

func (m mirror) Lookup(context.Context, []admission.LookupAsk) []admission.Result {
	return []admission.Result{m.result}
}

type rows struct {
	row shard.RequestRow
	err error
}

func (r rows) LookupRequest(context.Context, ids.CampaignID, ids.SKUID, ids.UserID, ids.RequestID) (shard.RequestRow, error) {
	return r.row, r.err
}

func (r rows) ListRequests(context.Context, ids.CampaignID, ids.UserID, int) ([]shard.RequestRow, error) {
	return []shard.RequestRow{r.row}, r.err
}

var query = Query{Scope: admission.Scope{Campaign: "c", SKU: "s"}, SKU: "s", User: "alice", Request: "r"}

func answerer(t *testing.T, m admission.Result, r rows, rate int) *Answerer {
	t.Helper()
	keys, err := signed.NewKeySet(signed.UseReceipt, map[string][]byte{"k1": []byte("0123456789abcdef0123")})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Cell: "cell-1", ReadRate: rate}, mirror{m}, r, signed.NewRing(keys), clock.NewManual(time.Unix(1000, 0)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mirrored(state pb.RequestState, build ids.Build) admission.Result {
	return admission.Result{Outcome: admission.Replayed, State: state, Build: build, SKU: "s", Request: "r", Reservation: "cell-1.rx", AdmittedAtMS: 5000, Quantity: 1}
}

const (
	queued   = pb.RequestState_REQUEST_STATE_QUEUED
	rejected = pb.RequestState_REQUEST_STATE_REJECTED
)

func TestGet(t *testing.T) {
	found := shard.RequestRow{Found: true, Request: "r", Campaign: "c", SKU: "s", Reservation: "cell-1.rx", Outcome: shard.Ordered, Order: "cell-1.ox", OrderState: reservation.PendingPayment, Build: ids.Build{Fence: 1, Count: 1}}
	clear := admission.Result{Outcome: admission.Clear}
	notReady := admission.Result{Outcome: admission.NotReady}
	build := ids.Build{Fence: 2, Count: 3}
	tests := []struct {
		name    string
		mirror  admission.Result
		rows    rows
		receipt bool
		state   pb.RequestState
		reason  pb.Reason
		err     error
	}{
		{"final in the mirror", mirrored(pb.RequestState_REQUEST_STATE_PAID, build), rows{err: errors.New("not asked")}, false, pb.RequestState_REQUEST_STATE_PAID, 0, nil},
		{"open in the mirror, row in the shard", mirrored(queued, build), rows{row: found}, false, pb.RequestState_REQUEST_STATE_PENDING_PAYMENT, 0, nil},
		{"open in the mirror, no row", mirrored(queued, build), rows{row: shard.RequestRow{MessagesFrom: 2, RaisedBuild: build}}, false, queued, 0, nil},
		{"open in the mirror, fenced", mirrored(queued, build), rows{row: shard.RequestRow{MessagesFrom: 3, RaisedBuild: ids.Build{Fence: 3, Count: 1}}}, false, rejected, pb.Reason_REASON_CELL_FENCED, nil},
		{"open in the mirror, older build", mirrored(queued, build), rows{row: shard.RequestRow{MessagesFrom: 2, RaisedBuild: ids.Build{Fence: 2, Count: 4}}}, false, rejected, pb.Reason_REASON_LOST_ADMISSION, nil},
		{"unknown everywhere", clear, rows{}, false, 0, 0, ErrNotFound},
		{"unknown everywhere, with its receipt", clear, rows{row: shard.RequestRow{MessagesFrom: 1}}, true, queued, 0, nil},
		{"receipt below messages_from", clear, rows{row: shard.RequestRow{MessagesFrom: 3}}, true, rejected, pb.Reason_REASON_CELL_FENCED, nil},
		{"receipt of a lost build", notReady, rows{row: shard.RequestRow{MessagesFrom: 1, RaisedBuild: ids.Build{Fence: 2, Count: 4}}}, true, rejected, pb.Reason_REASON_LOST_ADMISSION, nil},
		{"unknown while the mirror is rebuilt", notReady, rows{}, false, 0, 0, ErrUnavailable},
		{"mirror lost, row in the shard", notReady, rows{row: found}, false, pb.RequestState_REQUEST_STATE_PENDING_PAYMENT, 0, nil},
		{"shard silent", clear, rows{err: shard.ErrUnavailable}, true, 0, 0, ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := answerer(t, tt.mirror, tt.rows, 10)
			q := query
			if tt.receipt {
				q.Receipt = a.Sign(q, build, time.UnixMilli(5000))
			}
			v, err := a.Get(t.Context(), q)
			if !errors.Is(err, tt.err) || err == nil && tt.err != nil {
				t.Fatalf("error = %v, want %v", err, tt.err)
			}
			if err == nil && (v.GetState() != tt.state || v.GetReason() != tt.reason) {
				t.Fatalf("state %s/%s, want %s/%s", v.GetState(), v.GetReason(), tt.state, tt.reason)
			}
		})
	}
}

// TestStaleness: what the mirror alone answered, or did not have, says nothing about how far it is behind.
func TestStaleness(t *testing.T) {
	late := shard.RequestRow{Found: true, Outcome: shard.Rejected, OutcomeAge: 4 * time.Second}
	for _, tt := range []struct {
		name   string
		mirror admission.Result
		row    shard.RequestRow
		count  uint64
		sum    float64
	}{
		{"behind", mirrored(queued, ids.Build{}), late, 1, 4},
		{"as far as the shard", mirrored(queued, ids.Build{}), shard.RequestRow{}, 1, 0},
		{"final in the mirror", mirrored(rejected, ids.Build{}), late, 0, 0},
		{"not in the mirror", admission.Result{Outcome: admission.Clear}, late, 0, 0},
		{"a clock that stepped back", mirrored(queued, ids.Build{}), shard.RequestRow{Found: true, Outcome: shard.Rejected, OutcomeAge: -time.Second}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := answerer(t, tt.mirror, rows{row: tt.row}, 10)
			if _, err := a.Get(t.Context(), query); err != nil {
				t.Fatal(err)
			}
			reg := prometheus.NewRegistry()
			reg.MustRegister(a.behind)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			if h := families[0].GetMetric()[0].GetHistogram(); h.GetSampleCount() != tt.count || h.GetSampleSum() != tt.sum {
				t.Errorf("%d observations of %v s in all, want %d of %v", h.GetSampleCount(), h.GetSampleSum(), tt.count, tt.sum)
			}
		})
	}
}

func TestReceiptOfAnotherRequestIsRefused(t *testing.T) {
	a := answerer(t, admission.Result{Outcome: admission.Clear}, rows{}, 10)
	for name, edit := range map[string]func(*Query){
		"user": func(q *Query) { q.User = "bob" }, "request": func(q *Query) { q.Request = "r2" }, "sku": func(q *Query) { q.SKU = "s2" },
		"campaign": func(q *Query) { q.Scope.Campaign = "c2" },
	} {
		q := query
		q.Receipt = a.Sign(query, ids.Build{Fence: 1, Count: 1}, time.UnixMilli(1))
		edit(&q)
		if _, err := a.Get(t.Context(), q); !errors.Is(err, ErrReceipt) {
			t.Errorf("other %s: %v, want ErrReceipt", name, err)
		}
	}
}

func TestReadsOfTheShardAreBounded(t *testing.T) {
	a := answerer(t, admission.Result{Outcome: admission.Clear}, rows{}, 3)
	refused := 0
	for range 5 {
		if _, err := a.Get(t.Context(), query); errors.Is(err, ErrUnavailable) {
			refused++
		}
	}
	if refused != 2 {
		t.Fatalf("%d of 5 questions were refused at 3 per second, want 2", refused)
	}
}

func TestEveryOutcomeHasAState(t *testing.T) {
	for _, tt := range []struct {
		row   shard.RequestRow
		state pb.RequestState
	}{
		{shard.RequestRow{Outcome: shard.Rejected, Reason: reservation.SoldOut}, rejected},
		{shard.RequestRow{Outcome: shard.ReleasedBack}, pb.RequestState_REQUEST_STATE_RELEASED},
		{shard.RequestRow{Outcome: shard.Parked}, pb.RequestState_REQUEST_STATE_MANUAL_REVIEW},
		{shard.RequestRow{Outcome: shard.Ordered, Order: "o", OrderState: reservation.OrderPaid}, pb.RequestState_REQUEST_STATE_PAID},
		{shard.RequestRow{Outcome: shard.Ordered, Order: "o", OrderState: reservation.OrderClosed, OrderReason: reservation.Expired}, pb.RequestState_REQUEST_STATE_CLOSED},
		{shard.RequestRow{Outcome: shard.Ordered, Order: "o", OrderState: reservation.PendingPayment, ReservationState: reservation.ManualReview}, pb.RequestState_REQUEST_STATE_MANUAL_REVIEW},
	} {
		if v := FromRow(tt.row); v.GetState() != tt.state {
			t.Errorf("%+v reads %s, want %s", tt.row, v.GetState(), tt.state)
		}
	}
	for _, r := range []reservation.Reason{reservation.AlreadyReserved, reservation.SoldOut, reservation.Expired, reservation.Cancelled, reservation.CellFenced, reservation.LostAdmission, reservation.WindowClosed, reservation.Moved, reservation.Malformed, reservation.IdempotencyConflict, reservation.AlreadyPurchased, reservation.OrderWasClosed, reservation.TooManyUnpaid} {
		if ReasonOf(r).String() != "REASON_"+string(r) {
			t.Errorf("reason %s became %s", r, ReasonOf(r))
		}
	}
}
