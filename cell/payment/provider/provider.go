package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// Status is what the channel knows of an attempt.
type Status string

// The answers.
const (
	// Succeeded: the money was taken.
	Succeeded Status = "SUCCEEDED"
	// Failed: it was refused.
	Failed Status = "FAILED"
	// None: the channel never heard of the attempt; nobody has paid by it.
	None Status = "NONE"
	// Unknown: it cannot say; ask again.
	Unknown Status = "UNKNOWN"
)

// Answer is one answer. Amount is set when the channel names it.
type Answer struct {
	Status Status
	Amount reservation.Money
}

// Provider is a payment channel that can be asked. Inquire never fails: what is not an answer is
// Unknown, with the cause for the log.
type Provider interface {
	Inquire(ctx context.Context, order ids.OrderID, payment ids.PaymentID) (Answer, error)
}

// Sandbox is the channel of development and tests: it knows what it was told, and None of the rest.
type Sandbox struct {
	mu   sync.Mutex
	told map[[2]string]Answer
}

// Tell lets the sandbox answer for an attempt from now on.
func (s *Sandbox) Tell(order ids.OrderID, payment ids.PaymentID, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = map[[2]string]Answer{}
	}
	s.told[[2]string{string(order), string(payment)}] = a
}

// Inquire answers what was told.
func (s *Sandbox) Inquire(_ context.Context, order ids.OrderID, payment ids.PaymentID) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.told[[2]string{string(order), string(payment)}]; ok {
		return a, nil
	}
	return Answer{Status: None}, nil
}

// HTTP asks GET URL/orders/ORDER/payments/PAYMENT: 200 {"status", "amount"?, "currency"?} or 404 for
// an attempt it never heard of.
type HTTP struct {
	URL     string
	Timeout time.Duration // default 2 s
	Client  *http.Client  // default: a client of its own
}

const (
	defaultTimeout = 2 * time.Second
	maxAnswer      = 16 << 10
)

// Inquire asks the channel; anything but a clear answer is Unknown.
func (h *HTTP) Inquire(ctx context.Context, order ids.OrderID, payment ids.PaymentID) (Answer, error) {
	timeout := h.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address, err := url.JoinPath(h.URL, "orders", string(order), "payments", string(payment))
	if err != nil {
		return Answer{Status: Unknown}, fmt.Errorf("provider.url: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Answer{Status: Unknown}, err
	}
	client := h.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return Answer{Status: Unknown}, fmt.Errorf("ask the payment channel: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		return decode(res.Body)
	case http.StatusNotFound:
		return Answer{Status: None}, nil
	}
	return Answer{Status: Unknown}, fmt.Errorf("the payment channel answered %s", res.Status)
}

func decode(body io.Reader) (Answer, error) {
	var in struct {
		Status           Status `json:"status"`
		Amount, Currency string
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&in); err != nil {
		return Answer{Status: Unknown}, fmt.Errorf("the payment channel's answer: %w", err)
	}
	switch in.Status {
	case Succeeded, Failed, None, Unknown:
	default:
		return Answer{Status: Unknown}, fmt.Errorf("the payment channel's status %q is none of ours", in.Status)
	}
	if in.Amount == "" {
		return Answer{Status: in.Status}, nil
	}
	amount, err := reservation.ParseMoney(in.Amount, in.Currency)
	if err != nil {
		return Answer{Status: Unknown}, fmt.Errorf("the payment channel's amount: %w", err)
	}
	return Answer{Status: in.Status, Amount: amount}, nil
}
