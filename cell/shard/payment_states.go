package shard

// PaymentState of one attempt, keyed (order, payment).
type PaymentState string

// The states of an attempt (contract, section 8).
const (
	PaymentInitiated      PaymentState = "INITIATED"
	PaymentSucceeded      PaymentState = "SUCCEEDED"
	PaymentFailed         PaymentState = "FAILED"
	PaymentUnknown        PaymentState = "UNKNOWN"
	PaymentMismatch       PaymentState = "MISMATCH"
	PaymentPaidAfterClose PaymentState = "PAID_AFTER_CLOSE"
	PaymentRefundPending  PaymentState = "REFUND_PENDING"
	PaymentRefunded       PaymentState = "REFUNDED"
)

// open attempts keep an order from being closed.
func (p PaymentState) open() bool { return p == PaymentInitiated || p == PaymentUnknown }

// taken: money is, or was, with us by this attempt; another success of it is a repeat.
func (p PaymentState) taken() bool {
	switch p {
	case PaymentSucceeded, PaymentPaidAfterClose, PaymentRefundPending, PaymentRefunded:
		return true
	default: // the others have no case of their own: what follows the switch holds
	}
	return false
}
