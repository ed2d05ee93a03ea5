package provider

import (
	"context"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// Status is what the channel knows of an attempt or of a refund.
type Status string

// The answers about an attempt.
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

// The answers about a refund, beside Unknown.
const (
	// Refunded: the money went back; of a payment: it was taken, and all of it went back.
	Refunded Status = "REFUNDED"
	// Pending: the channel will carry it out; a callback may tell, or the next question.
	Pending Status = "PENDING"
	// Refused: the channel does not carry it out now. It is asked again, seldom; a person should look.
	Refused Status = "REFUSED"
)

// Answer is one answer. Amount is set when the channel names it; of a refund it may be a part of what was
// asked for.
type Answer struct {
	Status Status
	Amount reservation.Money
}

// Found is one payment that the channel knows of an order: Succeeded, Failed, Refunded or Unknown, which
// says that it is under way.
type Found struct {
	Payment ids.PaymentID
	Answer
}

// RefundOrder asks for money to go back.
type RefundOrder struct {
	// ID is the key that makes a repeat the same refund.
	ID      string
	Order   ids.OrderID
	Payment ids.PaymentID
	Amount  reservation.Money
	// Age is how long ago it was first wanted.
	Age time.Duration
}

// Provider is a payment channel. Its methods never fail: what is not an answer is Unknown, with the
// cause for the log.
type Provider interface {
	// Inquire asks what became of an attempt.
	Inquire(ctx context.Context, order ids.OrderID, payment ids.PaymentID) (Answer, error)
	// InquireOrder lists every payment of an order, whatever its id. Without an error the list is whole, and an
	// empty one says that nobody paid; with one nothing is known, also where the channel has no such question.
	InquireOrder(ctx context.Context, order ids.OrderID) ([]Found, error)
	// Refund asks for a refund; asked again under the same id it is the same refund.
	Refund(ctx context.Context, want RefundOrder) (Answer, error)
}
