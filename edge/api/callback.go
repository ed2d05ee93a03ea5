package api

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"regexp"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// callbackBody is the channel's message.
type callbackBody struct {
	PaymentID string `json:"payment_id"`
	OrderID   string `json:"order_id"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"`
	RefundID  string `json:"refund_id"`
}

// callbackStatuses are the channel's words.
var callbackStatuses = map[string]cq.CallbackStatus{
	"SUCCEEDED": cq.CallbackStatus_CALLBACK_STATUS_SUCCEEDED,
	"FAILED":    cq.CallbackStatus_CALLBACK_STATUS_FAILED,
	"PENDING":   cq.CallbackStatus_CALLBACK_STATUS_PENDING,
	"REFUNDED":  cq.CallbackStatus_CALLBACK_STATUS_REFUNDED,
}

// Grammars of money: at most 18 digits, at most 4 of them after the point.
var (
	amountGrammar   = regexp.MustCompile(`^(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?$`)
	currencyGrammar = regexp.MustCompile(`^[A-Z]{3}$`)
)

// maxDigits bounds an amount's digits.
const maxDigits = 18

// paymentCallback is POST /v1/payments/callbacks. Who sends it does not matter, only whether the
// bytes are signed; nothing is read from them before.
func (s *Server) paymentCallback(c *call) reply {
	if c.view == nil {
		return at(atCampaign, NotReady).reply()
	}
	raw, p := c.raw()
	if p != nil {
		return p.reply()
	}
	header := c.r.Header[signed.PaymentHeader]
	if len(header) != 1 || signed.VerifyPayment(header[0], raw, c.now, s.set.CallbackWindow, s.parts.PaymentKeys.Keys()) != nil {
		return at(atCallback, SignatureInvalid).reply()
	}
	var body callbackBody
	if p := decodeFrom(bytes.NewReader(raw), &body); p != nil {
		return p.reply()
	}
	in, order, p := body.check()
	if p != nil {
		return p.reply()
	}
	c.about.Order, c.about.Payment, c.about.Status = string(order), in.GetPaymentId(), body.Status
	return s.apply(c, order, in)
}

// check reads the message field by field; all that is wrong is named at once. An order id that none
// of ours could be is an unknown order, not a bad field: the channel must not send it again.
func (b *callbackBody) check() (*cq.ApplyPaymentCallbackRequest, ids.OrderID, *problem) {
	bad := at(atBody, InvalidArgument)
	if _, err := ids.ParsePaymentID(b.PaymentID); err != nil {
		bad.field("/payment_id", rule(err))
	}
	if !amount(b.Amount) {
		bad.field("/amount", "must be a decimal such as 4999.00, at most 18 digits, 4 of them after the point")
	}
	if !currencyGrammar.MatchString(b.Currency) {
		bad.field("/currency", "must be three capital letters")
	}
	status, ok := callbackStatuses[b.Status]
	if !ok {
		bad.field("/status", "must be SUCCEEDED, FAILED, PENDING or REFUNDED")
	}
	if refunded := status == cq.CallbackStatus_CALLBACK_STATUS_REFUNDED; refunded != (b.RefundID != "") {
		bad.field("/refund_id", "must be there with REFUNDED, and only then")
	} else if refunded {
		if _, err := ids.ParsePaymentID(b.RefundID); err != nil {
			bad.field("/refund_id", rule(err))
		}
	}
	if len(bad.errors) > 0 {
		return nil, "", bad
	}
	order, err := ids.ParseOrder(b.OrderID)
	if err != nil {
		order = ""
	}
	return &cq.ApplyPaymentCallbackRequest{
		PaymentId: b.PaymentID, OrderId: b.OrderID, Status: status, RefundId: b.RefundID,
		Amount: &cq.Money{Amount: b.Amount, Currency: b.Currency},
	}, order, nil
}

func amount(s string) bool {
	if !amountGrammar.MatchString(s) {
		return false
	}
	digits := len(s)
	if bytes.IndexByte([]byte(s), '.') >= 0 {
		digits--
	}
	return digits <= maxDigits
}

// apply hands a checked message to the cell that has the order.
func (s *Server) apply(c *call, order ids.OrderID, in *cq.ApplyPaymentCallbackRequest) reply {
	if order == "" || c.view.Cell(order.Cell()) == nil {
		// No shard has such an order; the record is this line.
		s.log.WarnContext(c.ctx(), "callback for an order that no cell can have", slog.String(telemetry.Event, "callback_order_unknown"),
			slog.String(telemetry.OrderID, in.GetOrderId()), slog.String(telemetry.PaymentID, in.GetPaymentId()), slog.String("status", in.GetStatus().String()))
		return at(atCallback, OrderUnknown).reply()
	}
	cell, p := answering(c.view.Cell(order.Cell()))
	if p != nil {
		return p.reply()
	}
	out, err := once(s, c.lasting(), cell.ID, in, doorCallback)
	if err != nil {
		p := s.failed(c, atCallback, cell.ID, err)
		if p.code == NotFound {
			p.code = OrderUnknown
		}
		return p.reply()
	}
	o := newObject(make([]byte, 0, 192))
	o.str("order_id", out.GetOrderId())
	o.str("order_state", orderWord(out.GetOrderState()))
	o.str("payment_state", paymentWord(out.GetPaymentState()))
	return reply{layer: atCallback, code: "OK", status: http.StatusOK, body: o.end()}
}

func doorCallback(d proxy.Door) func(context.Context, *cq.ApplyPaymentCallbackRequest, ...grpc.CallOption) (*cq.ApplyPaymentCallbackResponse, error) {
	return d.Orders.ApplyPaymentCallback
}
