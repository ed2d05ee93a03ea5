package provider

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Sandbox is the channel of development and tests: of attempts it knows what it was told, and None of
// the rest; it carries out every refund once RefundAfter has passed since it was wanted.
type Sandbox struct {
	// RefundAfter is how long a refund is Pending; 0: it is Refunded at once.
	RefundAfter time.Duration

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

// InquireOrder lists what was told of an order, by payment.
func (s *Sandbox) InquireOrder(_ context.Context, order ids.OrderID) ([]Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Found
	for of, a := range s.told {
		if of[0] == string(order) && a.Status != None {
			out = append(out, Found{Payment: ids.PaymentID(of[1]), Answer: a})
		}
	}
	slices.SortFunc(out, func(a, b Found) int { return strings.Compare(string(a.Payment), string(b.Payment)) })
	return out, nil
}

// Refund takes its time, as channels do.
func (s *Sandbox) Refund(_ context.Context, want RefundOrder) (Answer, error) {
	if want.Age < s.RefundAfter {
		return Answer{Status: Pending}, nil
	}
	return Answer{Status: Refunded}, nil
}
