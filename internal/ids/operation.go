package ids

import "github.com/google/uuid"

// NewOperationID mints an operation id for a caller that brought none: a UUID of
// version 7, so that ids made later sort later. It fails only when the system
// has no randomness left, which no caller can handle, and then panics.
func NewOperationID() string { return uuid.Must(uuid.NewV7()).String() }

// ParseOperationID accepts a caller's operation id or adjustment id:
// [A-Za-z0-9._:-]{1,128}. field is its name in the request ("operation_id",
// "adjustment_id"); anything else is an *Error on that field.
func ParseOperationID(field, s string) (string, error) {
	g := operationGrammar
	g.field = field
	return parse[string](&g, s)
}
