package reservation

import (
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Reason is why a request ended without an order, or an order was closed (contract, section 8).
type Reason string

// The reasons.
const (
	NoReason            Reason = ""
	AlreadyReserved     Reason = "ALREADY_RESERVED"
	AlreadyPurchased    Reason = "ALREADY_PURCHASED"
	OrderWasClosed      Reason = "ORDER_CLOSED"
	SoldOut             Reason = "SOLD_OUT"
	Expired             Reason = "EXPIRED"
	Cancelled           Reason = "CANCELLED"
	CellFenced          Reason = "CELL_FENCED"
	LostAdmission       Reason = "LOST_ADMISSION"
	WindowClosed        Reason = "WINDOW_CLOSED"
	Moved               Reason = "MOVED"
	Malformed           Reason = "MALFORMED"
	IdempotencyConflict Reason = "IDEMPOTENCY_CONFLICT"
	TooManyUnpaid       Reason = "TOO_MANY_UNPAID"
)

// Admission is one message of the log, decoded and checked.
type Admission struct {
	Reservation     ids.ReservationID
	Request         ids.RequestID
	Campaign        ids.CampaignID
	SKU             ids.SKUID
	User            ids.UserID
	Quantity        int32
	Domain          string
	Build           ids.Build
	Fingerprint     string
	Price           Money
	PermitExpiresAt time.Time // zero: no permit was asked for
	DeviceID        string
	RiskTier        string
	AdmittedAt      time.Time // by the mirror's clock
}

// Rules are the campaign's and SKU's rules that a message is judged by.
type Rules struct {
	OpenAt, CloseAt time.Time
	Price           Money
	MaxQuantity     int32
	TTL             time.Duration
	// TTLByRisk shortens TTL for a risk tier.
	TTLByRisk map[string]time.Duration
	// Cancelled: the campaign was cancelled; what is still in the log gets no order.
	Cancelled bool
	Holds     Holds
}

// Holds bound the unpaid orders of one user, over a campaign's SKUs, and of one device; 0: no bound
// . Both are counted within the home cell.
type Holds struct {
	PerUser, PerDevice int32
}

// Bounded tells whether anything is to be counted.
func (h Holds) Bounded() bool { return h.PerUser > 0 || h.PerDevice > 0 }

// Allow decides about one more unpaid order of a user who holds so many, from a device that holds so
// many.
func (h Holds) Allow(user, device int32) bool {
	return (h.PerUser == 0 || user < h.PerUser) && (h.PerDevice == 0 || device < h.PerDevice)
}

// PaymentTTL is how long an order of a risk tier may stay unpaid.
func (r *Rules) PaymentTTL(tier string) time.Duration {
	if d, ok := r.TTLByRisk[tier]; ok && d > 0 && d < r.TTL {
		return d
	}
	return r.TTL
}

// Earlier is an attempt that the inbox has under the same request id.
type Earlier struct {
	Reservation ids.ReservationID
	Rejected    bool
	Reason      Reason
	Fingerprint string
}

// Facts are what the shard read under its locks.
type Facts struct {
	MessagesFrom int64     // fence row
	Raised       ids.Build // of the message's mirror; zero: none was raised yet
	Rules        *Rules    // nil: the shard does not sell this
	Owned        bool      // the user's bucket is open here
	Earlier      []Earlier
	Archived     bool // the campaign is: every message had its outcome, whose row may be gone
}

// Verdict is what is decided about a message before buyer and stock are asked.
type Verdict struct {
	// Duplicate: this very message has its outcome; nothing is to be done.
	Duplicate bool
	// Reason: the message is rejected. Empty: it is a candidate for an order.
	Reason Reason
}

// Candidate messages go on to the buyer row and the stock.
func (v Verdict) Candidate() bool { return !v.Duplicate && v.Reason == NoReason }

// Judge decides everything about a message that needs neither buyer nor stock, in the order of
// architecture 6 (the same in which a receipt without a row is read). A message that has its outcome
// is a duplicate whatever else holds by now; so is one of an archived campaign, whose outcome may be
// forgotten: a log that is replayed from its start makes no order of what was once sold out.
func Judge(m *Admission, f *Facts) Verdict {
	for i := range f.Earlier {
		if f.Earlier[i].Reservation == m.Reservation {
			return Verdict{Duplicate: true}
		}
	}
	if f.Archived {
		return Verdict{Duplicate: true}
	}
	switch {
	case m.Build.Fence < f.MessagesFrom:
		return Verdict{Reason: CellFenced}
	case m.Build.Compare(f.Raised) < 0:
		return Verdict{Reason: LostAdmission}
	case f.Rules == nil, m.Quantity < 1, m.Quantity > f.Rules.MaxQuantity, m.Price != f.Rules.Price:
		return Verdict{Reason: Malformed}
	case f.Rules.Cancelled, m.AdmittedAt.Before(f.Rules.OpenAt), !m.AdmittedAt.Before(f.Rules.CloseAt):
		return Verdict{Reason: WindowClosed}
	case !m.PermitExpiresAt.IsZero() && !m.AdmittedAt.Before(m.PermitExpiresAt):
		return Verdict{Reason: Expired}
	case !f.Owned:
		return Verdict{Reason: Moved}
	}
	return Verdict{Reason: earlierAttempt(m, f.Earlier)}
}

// earlierAttempt: the same request under another build. A rejection with a row is final for its
// request id, except MOVED, after which the new home decides.
func earlierAttempt(m *Admission, earlier []Earlier) Reason {
	for i := range earlier {
		switch {
		case earlier[i].Fingerprint != m.Fingerprint:
			return IdempotencyConflict
		case earlier[i].Rejected && earlier[i].Reason != Moved:
			return earlier[i].Reason
		}
	}
	return NoReason
}

// BuyerReason is the rejection of a user whose place is taken by an order in this life.
func BuyerReason(l Life) Reason {
	switch l {
	case Paid:
		return AlreadyPurchased
	case Closed:
		return OrderWasClosed
	default: // the others have no case of their own: what follows the switch holds
	}
	return AlreadyReserved
}
