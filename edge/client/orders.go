package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Order is an order as its shard has it.
type Order struct {
	OrderID       string    `json:"order_id"`
	ReservationID string    `json:"reservation_id"`
	RequestID     string    `json:"request_id"`
	CampaignID    string    `json:"campaign_id"`
	SKUID         string    `json:"sku_id"`
	Quantity      int       `json:"quantity"`
	Amount        string    `json:"amount"`
	Currency      string    `json:"currency"`
	State         string    `json:"state"`
	Reason        string    `json:"reason"`
	PaymentState  string    `json:"payment_state"`
	Message       string    `json:"message"`
	CreatedAt     time.Time `json:"created_at"`
	ExpiresAt     time.Time `json:"expires_at"`
	ExpiresInMS   int64     `json:"expires_in_ms"`
	PaidAt        time.Time `json:"paid_at"`
	ClosedAt      time.Time `json:"closed_at"`
	StatusURL     string    `json:"status_url"`
}

// Order asks for an order.
func (c *Client) Order(ctx context.Context, token, order string) (Order, Answer, error) {
	var out Order
	a, err := c.do(ctx, in{method: http.MethodGet, token: token, path: "/v1/orders/" + order}, &out)
	return out, a, err
}

// Orders asks for the user's own orders; complete is false when a part could not be read.
func (c *Client) Orders(ctx context.Context, token string) (orders []Order, complete bool, a Answer, err error) {
	var out struct {
		Orders   []Order `json:"orders"`
		Complete bool    `json:"complete"`
	}
	a, err = c.do(ctx, in{method: http.MethodGet, token: token, path: "/v1/orders"}, &out)
	return out.Orders, out.Complete, a, err
}

// Cancel closes an unpaid order.
func (c *Client) Cancel(ctx context.Context, token, order string) (Order, Answer, error) {
	var out Order
	a, err := c.do(ctx, in{method: http.MethodPost, token: token, path: "/v1/orders/" + order + "/cancel"}, &out)
	return out, a, err
}

// Payment is an attempt to pay: what, until when.
type Payment struct {
	PaymentID string    `json:"payment_id"`
	Amount    string    `json:"amount"`
	Currency  string    `json:"currency"`
	ExpiresAt time.Time `json:"expires_at"`
}

// StartPayment starts an attempt under the caller's id; a repeat answers the same.
func (c *Client) StartPayment(ctx context.Context, token, order, payment string) (Payment, Answer, error) {
	body, err := json.Marshal(map[string]string{"payment_id": payment})
	if err != nil {
		return Payment{}, Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	var out Payment
	a, err := c.do(ctx, in{method: http.MethodPost, token: token, body: body, path: "/v1/orders/" + order + "/payments"}, &out)
	return out, a, err
}

// Callback is the payment channel's message.
type Callback struct {
	PaymentID string `json:"payment_id"`
	OrderID   string `json:"order_id"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"` // SUCCEEDED, FAILED, PENDING or REFUNDED
	RefundID  string `json:"refund_id,omitempty"`
}

// CallbackResult is the state after a callback.
type CallbackResult struct {
	OrderID      string `json:"order_id"`
	OrderState   string `json:"order_state"`
	PaymentState string `json:"payment_state"`
}

// SendCallback sends the channel's message, with its signature made by sign over exactly the bytes
// that are sent (signed.SignPayment under the channel's key).
func (c *Client) SendCallback(ctx context.Context, message Callback, sign func(body []byte) (string, error)) (CallbackResult, Answer, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return CallbackResult{}, Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	signature, err := sign(body)
	if err != nil {
		return CallbackResult{}, Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	var out CallbackResult
	a, err := c.do(ctx, in{method: http.MethodPost, body: body, sig: signature, path: "/v1/payments/callbacks"}, &out)
	return out, a, err
}
