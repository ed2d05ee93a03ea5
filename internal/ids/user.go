package ids

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// UserID is the subject of a verified identity token, compared byte for byte
// everywhere (architecture §5). One order per user rests on two spellings of a
// user never being two UserIDs, so what could be spelt twice is refused, not
// repaired: 1 to 128 bytes of valid UTF-8 in NFC, without control, format or
// white-space characters.
type UserID string

// maxUserBytes bounds a user id in bytes, not in characters.
const maxUserBytes = 128

// ParseUserID accepts what UserID describes; anything else is an *Error on
// user_id that names the first rule broken, in the order size, UTF-8,
// characters, NFC.
func ParseUserID(s string) (UserID, error) {
	if rule := brokenUserRule(s); rule != "" {
		return "", &Error{Field: "user_id", Rule: rule}
	}
	return UserID(s), nil
}

func brokenUserRule(s string) string {
	if len(s) < 1 || len(s) > maxUserBytes {
		return "must be 1 to 128 bytes"
	}
	if !utf8.ValidString(s) {
		return "must be valid UTF-8"
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Z, unicode.White_Space) {
			return "must not contain control, format or white-space characters"
		}
	}
	if !norm.NFC.IsNormalString(s) {
		return "must be in Unicode normal form NFC"
	}
	return ""
}
