package api_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// An order is read from its shard, with what was paid and given back; who has no such order says so.
func TestGetOrder(t *testing.T) {
	p := newPlant(t)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'u1')")
	id := ids.DeriveReservation("c", "s", "u1", "q-u1", "cell-1", ids.Build{Fence: 1, Count: 1}).Order()
	p.exec("cell-1", "UPDATE cellquota.orders SET order_id = $1 WHERE user_id = 'u1'", string(id))
	p.exec("cell-1", "INSERT INTO cellquota.payments VALUES ($1, 'p', 12.3450, 'EUR', 'REFUND_PENDING', 'rf', now(), now())", string(id))
	p.exec("cell-1", `INSERT INTO cellquota.refunds (refund_id, order_id, payment_id, amount, currency, cause, actor, reason, state, asks, answer, next_ask_at, requested_at)
		VALUES ('rf', $1, 'p', 12.3450, 'EUR', 'REQUESTED', 'sre@example', 'complaint', 'PENDING', 3, 'UNKNOWN', now(), now())`, string(id))
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	got, err := viewer.Reports.GetOrder(ctx, &pb.ReportServiceGetOrderRequest{OrderId: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	if o := got.GetOrder(); o.GetState() != pb.OrderState_ORDER_STATE_PAID || o.GetUserId() != "u1" || o.GetPaidAtMs() == 0 || o.GetClosedAtMs() != 0 ||
		o.GetPaymentState() != pb.PaymentState_PAYMENT_STATE_REFUND_PENDING || got.GetReservationState() != pb.ReservationState_RESERVATION_STATE_CONFIRMED {
		t.Errorf("%v", got)
	}
	if m := got.GetPayments()[0].GetAmount(); m.GetAmount() != "12.345" || m.GetCurrency() != "EUR" {
		t.Errorf("%v", m)
	}
	if r := got.GetRefunds(); len(r) != 1 || r[0].GetActor() != "sre@example" || r[0].GetAnswer() != "UNKNOWN" || r[0].GetAsks() != 3 || r[0].GetRefundedAtMs() != 0 {
		t.Errorf("%v", r)
	}
	// A shard one step behind has no refunds to tell of, and answers.
	p.exec("cell-1", "DROP VIEW cellquota.v_refunds")
	if got, err := viewer.Reports.GetOrder(ctx, &pb.ReportServiceGetOrderRequest{OrderId: string(id)}); err != nil || len(got.GetPayments()) != 1 || len(got.GetRefunds()) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for order, want := range map[string]codes.Code{
		"x": codes.InvalidArgument, strings.Replace(string(id), "cell-1", "cell-9", 1): codes.NotFound,
		string(ids.DeriveReservation("c", "s", "u2", "r", "cell-1", ids.Build{Fence: 1, Count: 1}).Order()): codes.NotFound,
	} {
		if _, err := viewer.Reports.GetOrder(ctx, &pb.ReportServiceGetOrderRequest{OrderId: order}); status.Code(err) != want {
			t.Errorf("%s: %v", order, err)
		}
	}
	p.unreachable("cell-2")
	elsewhere := strings.Replace(string(id), "cell-1", "cell-2", 1)
	if _, err := viewer.Reports.GetOrder(ctx, &pb.ReportServiceGetOrderRequest{OrderId: elsewhere}); status.Code(err) != codes.Unavailable {
		t.Errorf("a silent shard: %v", err)
	}
}

// A refund goes to the order's cell under the operator's own name; its refusal comes back as it is; a
// viewer may not, and nobody may call the rest of the cells' service here.
func TestRefundOrderGoesToItsCell(t *testing.T) {
	p := newPlant(t)
	ctx := testkit.Deadline(t)
	id := ids.DeriveReservation("c", "s", "u1", "q", "cell-1", ids.Build{Fence: 1, Count: 1}).Order()
	ask := func() *pb.RefundOrderRequest {
		return &pb.RefundOrderRequest{OrderId: string(id), RefundId: "rf", Actor: "somebody else", Reason: "complaint"}
	}
	sre := p.as(access.SRE)
	out, err := sre.Orders.RefundOrder(ctx, ask())
	if err != nil || out.GetPaymentState() != pb.PaymentState_PAYMENT_STATE_REFUND_PENDING {
		t.Fatalf("%v, %v", out, err)
	}
	till := &p.mirrors["cell-1"].till
	if n := len(till.asked); n != 1 || till.asked[0].GetActor() == "somebody else" || till.asked[0].GetActor() == "" || till.asked[0].GetReason() != "complaint" {
		t.Fatalf("the cell was asked %v", till.asked)
	}
	if len(p.mirrors["cell-2"].till.asked) != 0 {
		t.Error("another cell was asked")
	}
	till.err = fmt.Errorf("%w: the order was never paid", rpcstatus.ErrFailedPrecondition)
	if _, err := sre.Orders.RefundOrder(ctx, ask()); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "never paid") {
		t.Errorf("refused: %v", err)
	}
	till.err = rpcstatus.ErrUnavailable
	if _, err := sre.Orders.RefundOrder(ctx, ask()); status.Code(err) != codes.Unavailable {
		t.Errorf("away: %v", err)
	}
	for name, spoil := range map[string]func(*pb.RefundOrderRequest){
		"order_id": func(in *pb.RefundOrderRequest) { in.OrderId = "x" }, "refund_id": func(in *pb.RefundOrderRequest) { in.RefundId = "" },
		"reason": func(in *pb.RefundOrderRequest) { in.Reason = "" },
	} {
		in := ask()
		spoil(in)
		if _, err := sre.Orders.RefundOrder(ctx, in); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.as(access.Viewer).Orders.RefundOrder(ctx, ask()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
	if _, err := sre.Orders.CancelOrder(ctx, &pb.CancelOrderRequest{OrderId: string(id), UserId: "u1"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("cancel: %v", err)
	}
}

// A review is ended in its reservation's cell, under the operator's own name, by an sre alone; what the cell
// refuses comes back as it is.
func TestReviewsEndInTheirCell(t *testing.T) {
	p := newPlant(t)
	ctx := testkit.Deadline(t)
	id := string(ids.DeriveReservation("c", "s", "u1", "q", "cell-1", ids.Build{Fence: 1, Count: 1}))
	release := func() *pb.ReleaseReservationRequest {
		return &pb.ReleaseReservationRequest{ReservationId: id, OperationId: "op-1", Actor: "somebody else", Reason: "silent", Incident: "INC-7", ValidateOnly: true}
	}
	returned := &pb.ReturnAdmissionRequest{ReservationId: id, OperationId: "op-2", Reason: "damaged", Incident: "INC-8", RejectedFor: pb.Reason_REASON_SOLD_OUT}
	sre := p.as(access.SRE)
	if out, err := sre.Orders.ReleaseReservation(ctx, release()); err != nil || out.GetOperationId() != "op-1" || out.GetUnits() != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	if out, err := sre.Orders.ReturnAdmission(ctx, returned); err != nil || out.GetRejectedFor() != pb.Reason_REASON_SOLD_OUT {
		t.Fatalf("%v, %v", out, err)
	}
	till := &p.mirrors["cell-1"].till
	for i, want := range []string{"op-1 silent INC-7 true", "op-2 damaged INC-8 false"} {
		in := till.ended[i]
		if got := fmt.Sprint(in.GetOperationId(), " ", in.GetReason(), " ", in.GetIncident(), " ", in.GetValidateOnly()); got != want ||
			in.GetReservationId() != id || in.GetActor() == "" || in.GetActor() == "somebody else" {
			t.Errorf("the cell was asked %v, want %s", in, want)
		}
	}
	if len(till.ended) != 2 || len(p.mirrors["cell-2"].till.ended) != 0 {
		t.Error("asked more than once, or another cell")
	}
	till.err = fmt.Errorf("%w: it is CONFIRMED", rpcstatus.ErrFailedPrecondition)
	if _, err := sre.Orders.ReleaseReservation(ctx, release()); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "CONFIRMED") {
		t.Errorf("refused: %v", err)
	}
	for name, spoil := range map[string]func(*pb.ReleaseReservationRequest){
		"reservation_id": func(in *pb.ReleaseReservationRequest) { in.ReservationId = "x" }, "operation_id": func(in *pb.ReleaseReservationRequest) { in.OperationId = "" },
		"reason": func(in *pb.ReleaseReservationRequest) { in.Reason = "" }, "incident": func(in *pb.ReleaseReservationRequest) { in.Incident = "" },
	} {
		in := release()
		spoil(in)
		if _, err := sre.Orders.ReleaseReservation(ctx, in); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, role := range []string{access.Viewer, access.CampaignManager, access.RegionOperator} {
		if _, err := p.as(role).Orders.ReleaseReservation(ctx, release()); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", role, err)
		}
	}
}
