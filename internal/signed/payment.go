package signed

import (
	"crypto/hmac"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// PaymentHeader is the HTTP header that carries the signature of a callback.
const PaymentHeader = "Payment-Signature"

// SignPayment is the header's value for body at the given time, to the second,
// under kid: "t=UNIX_SECONDS,kid=KID,v1=HEX". A kid that keys do not hold is
// ErrUnknownKey.
func SignPayment(at time.Time, body []byte, keys *KeySet, kid string) (string, error) {
	t := strconv.FormatInt(at.Unix(), 10)
	mac, ok := keys.mac(kid, []byte(t), []byte("."), body)
	if !ok {
		return "", fmt.Errorf("sign a payment: %w %q", ErrUnknownKey, kid)
	}
	return "t=" + t + ",kid=" + kid + ",v1=" + hex.EncodeToString(mac), nil
}

// VerifyPayment returns nil when header signs exactly these body bytes under one
// of keys and its time is at most tolerance away from now, in either direction;
// anything else is ErrInvalid. The three elements may come in any order, each
// once, without spaces. It does not remember: a repeat of a good callback
// verifies again, and its effect is idempotent.
func VerifyPayment(header string, body []byte, now time.Time, tolerance time.Duration, keys *KeySet) error {
	t, kid, v1, ok := parsePaymentHeader(header)
	if !ok {
		return ErrInvalid
	}
	given, err := hex.DecodeString(v1)
	if err != nil {
		return ErrInvalid
	}
	mac, held := keys.mac(kid, []byte(t), []byte("."), body)
	if !held || !hmac.Equal(mac, given) {
		return ErrInvalid
	}
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return ErrInvalid
	}
	return nil
}

// maxPaymentHeader bounds what is parsed: 12 digits, a kid, 64 hex digits.
const maxPaymentHeader = 256

func parsePaymentHeader(header string) (t, kid, v1 string, ok bool) {
	if len(header) > maxPaymentHeader {
		return "", "", "", false
	}
	elements := strings.Split(header, ",")
	for _, e := range elements {
		name, value, _ := strings.Cut(e, "=")
		field := map[string]*string{"t": &t, "kid": &kid, "v1": &v1}[name]
		if field == nil || *field != "" || value == "" {
			return "", "", "", false
		}
		*field = value
	}
	return t, kid, v1, len(elements) == 3 && len(t) <= 12 && isKid(kid)
}
