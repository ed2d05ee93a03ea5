package signed

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is the one answer to everything that does not verify. Its text says
// nothing about why.
var ErrInvalid = errors.New("not valid")

const (
	tokenVersion  = "v1"
	maxTokenBytes = 1024 // the longest permit has about 730
)

var b64 = base64.RawURLEncoding.Strict()

// signToken renders payload as a token of the set's use under kid.
func (s *KeySet) signToken(kid string, payload []byte) (string, error) {
	if !s.Has(kid) {
		return "", fmt.Errorf("sign a %s: %w %q", s.use, ErrUnknownKey, kid)
	}
	body := tokenVersion + "." + kid + "." + b64.EncodeToString(payload)
	mac, ok := s.tokenMAC(kid, body)
	if !ok {
		return "", fmt.Errorf("sign a %s: %w %q", s.use, ErrUnknownKey, kid)
	}
	return body + "." + mac, nil
}

// openToken is the payload of a token that s signed, else ErrInvalid. The mac is
// compared as text, so that no second spelling of it passes, and before the
// payload is looked at.
func (s *KeySet) openToken(token string) ([]byte, error) {
	if len(token) > maxTokenBytes {
		return nil, ErrInvalid
	}
	dot := strings.LastIndexByte(token, '.')
	parts := strings.Split(token, ".")
	if len(parts) != 4 || parts[0] != tokenVersion {
		return nil, ErrInvalid
	}
	mac, ok := s.tokenMAC(parts[1], token[:dot])
	if !ok || !hmac.Equal([]byte(mac), []byte(parts[3])) {
		return nil, ErrInvalid
	}
	payload, err := b64.DecodeString(parts[2])
	if err != nil {
		return nil, ErrInvalid
	}
	return payload, nil
}

func (s *KeySet) tokenMAC(kid, body string) (string, bool) {
	mac, ok := s.mac(kid, []byte(s.use), []byte("."), []byte(body))
	return b64.EncodeToString(mac), ok
}
