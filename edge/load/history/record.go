package history

// Op names what the client did.
type Op string

// The operations of a customer.
const (
	OpPermit   Op = "permit"
	OpRequest  Op = "request"
	OpStatus   Op = "status"
	OpOrder    Op = "order"
	OpCancel   Op = "cancel"
	OpPayment  Op = "payment"
	OpCallback Op = "callback"
)

// Record is one operation and its answer. Times are Unix microseconds by the generator's clock.
type Record struct {
	Op       Op     `json:"op"`
	Start    int64  `json:"start_us"`
	End      int64  `json:"end_us"`
	Campaign string `json:"campaign,omitempty"`
	// Scope is the purchase scope key: the SKU, or "*" when the campaign counts orders per campaign.
	Scope    string `json:"scope,omitempty"`
	SKU      string `json:"sku,omitempty"`
	User     string `json:"user,omitempty"`
	Request  string `json:"request_id,omitempty"`
	Quantity int32  `json:"quantity,omitempty"`
	// Attempt is the Retry-Attempt header; 0 for the first try.
	Attempt int `json:"attempt,omitempty"`
	// Unknown: no answer came. Status is 0 then.
	Unknown bool `json:"unknown,omitempty"`
	// Status is the HTTP status.
	Status int `json:"status,omitempty"`
	// Code is the problem's code for a refusal.
	Code string `json:"code,omitempty"`
	// State, Reason, Reservation and Order are of the request or order in the body.
	State       string `json:"state,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Reservation string `json:"reservation_id,omitempty"`
	Order       string `json:"order_id,omitempty"`
	Payment     string `json:"payment_id,omitempty"`
	// PaymentState is the attempt's state in a callback's answer.
	PaymentState string `json:"payment_state,omitempty"`
	// Receipt tells that a status was asked with the receipt of a 202.
	Receipt bool `json:"receipt,omitempty"`
	// Fence and Cell are read from the receipt of a 202: which cell promised, under which version.
	Fence int64  `json:"fence_version,omitempty"`
	Cell  string `json:"cell,omitempty"`
}

// Key names one request: request ids are unique per user, campaign and SKU.
type Key struct {
	Campaign, SKU, User, Request string
}

// RequestKey of the record; the zero Key for operations that name no request.
func (r Record) RequestKey() Key {
	if r.Request == "" {
		return Key{}
	}
	return Key{Campaign: r.Campaign, SKU: r.SKU, User: r.User, Request: r.Request}
}

// accepted tells whether the answer promised an outcome: 202, or 200 for a repeat.
func (r Record) accepted() bool {
	return r.Op == OpRequest && (r.Status == 202 || r.Status == 200)
}

// mayHaveHappened tells whether the platform may have acted although the answer is no promise: no
// answer, or a 5xx, which says that the outcome is not known to the edge.
func (r Record) mayHaveHappened() bool {
	return r.Unknown || r.Status >= 500
}
