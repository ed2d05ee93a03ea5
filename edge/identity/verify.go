package identity

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"
)

// Bounds of a token, in bytes.
const maxToken = 8 << 10

// Settings say whose tokens are accepted, and for whom.
type Settings struct {
	Issuer   string
	Audience string
	Now      func() time.Time
}

// Verifier verifies tokens. Make one with NewHS256 or NewJWKS; it is safe for concurrent use.
type Verifier struct {
	methods map[string]jwt.SigningMethod // those that are accepted, by name
	key     keyFunc
	rules   *jwt.Validator
	last    atomic.Pointer[header] // most tokens of an issuer have the same
}

// keyFunc finds the key for an algorithm and a key id, "" for none.
type keyFunc func(algorithm, kid string) (any, error)

// header is the first part of a token.
type header struct {
	text      string // as it came
	Algorithm string `json:"alg"`
	KID       string `json:"kid"`
	Critical  []any  `json:"crit"` // what whoever does not understand it must refuse; we understand none
}

func newVerifier(s Settings, algorithms []string, key keyFunc) (*Verifier, error) {
	if s.Issuer == "" || s.Audience == "" {
		return nil, errors.New("identity: issuer and audience must be set")
	}
	v := &Verifier{key: key, methods: map[string]jwt.SigningMethod{}, rules: jwt.NewValidator(
		jwt.WithIssuer(s.Issuer),
		jwt.WithAudience(s.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(clockSkew),
		jwt.WithTimeFunc(s.Now),
	)}
	for _, name := range algorithms {
		v.methods[name] = jwt.GetSigningMethod(name)
	}
	return v, nil
}

// Verify reads the value of an Authorization header. Errors are ErrUnauthenticated, ErrInvalid and
// ErrNoKeys. Nothing of a token is believed before its signature holds.
func (v *Verifier) Verify(authorization string) (*Identity, error) {
	token, ok := bearer(authorization)
	if !ok {
		return nil, fmt.Errorf("%w: no bearer token", ErrUnauthenticated)
	}
	head, rest, _ := strings.Cut(token, ".")
	body, mac, ok := strings.Cut(rest, ".")
	if !ok || strings.ContainsAny(token, "\r\n") { // which base64 passes over
		return nil, fmt.Errorf("%w: not three parts", ErrUnauthenticated)
	}
	err := v.signed(token[:len(head)+1+len(body)], head, mac)
	if errors.Is(err, ErrNoKeys) {
		return nil, ErrNoKeys
	}
	if err != nil {
		return nil, errors.Join(ErrUnauthenticated, err)
	}
	payload, err := encoding.DecodeString(body)
	if err != nil {
		return nil, fmt.Errorf("%w: payload: %w", ErrUnauthenticated, err)
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, fmt.Errorf("%w: payload: %w", ErrUnauthenticated, err)
	}
	if err := v.rules.Validate(&c); err != nil {
		return nil, errors.Join(ErrUnauthenticated, err)
	}
	return c.identity(payload)
}

// encoding refuses texts that another text decodes to as well.
var encoding = base64.RawURLEncoding.Strict()

// signed reports whether the signature over text is one of a key that may make it.
func (v *Verifier) signed(text, head, mac string) error {
	h, err := v.header(head)
	if err != nil {
		return err
	}
	method, ok := v.methods[h.Algorithm]
	if !ok {
		return errors.New("algorithm: not one that is accepted")
	}
	key, err := v.key(h.Algorithm, h.KID)
	if err != nil {
		return err
	}
	signature, err := encoding.DecodeString(mac)
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	return method.Verify(text, signature, key)
}

// header reads the first part of a token, unless it is the same as the one before.
func (v *Verifier) header(text string) (*header, error) {
	if last := v.last.Load(); last != nil && last.text == text {
		return last, nil
	}
	raw, err := encoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	h := &header{text: strings.Clone(text)}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if h.Critical != nil {
		return nil, errors.New("header: crit asks for what is not understood")
	}
	v.last.Store(h)
	return h, nil
}

// bearer cuts the scheme, which is compared without case (RFC 9110), from the token.
func bearer(header string) (string, bool) {
	const scheme = "bearer "
	if len(header) <= len(scheme) || len(header) > maxToken || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	return header[len(scheme):], true
}
