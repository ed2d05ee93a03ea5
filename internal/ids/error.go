package ids

import "errors"

// ErrInvalid is the sentinel behind every *Error of this package: the value is
// not what the grammar of its field asks for. It is permanent; the same value
// will be refused again.
var ErrInvalid = errors.New("invalid id")

// Error is one refused value. It holds the field's name as users write it
// (campaign_id, sku_id, …) and the rule in words; it deliberately holds no part
// of the value, which may be anything a client chose to send (K82).
type Error struct {
	Field string // name in proto and JSON, e.g. "campaign_id"
	Rule  string // e.g. "must be 1 to 63 of a-z, 0-9 and -"
}

// Error says field and rule: "campaign_id: must be 1 to 63 of a-z, 0-9 and -".
func (e *Error) Error() string { return e.Field + ": " + e.Rule }

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *Error) Unwrap() error { return ErrInvalid }
