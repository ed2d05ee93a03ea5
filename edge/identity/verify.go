package identity

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

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
	parser *jwt.Parser
	key    jwt.Keyfunc
}

func newVerifier(s Settings, algorithms []string, key jwt.Keyfunc) (*Verifier, error) {
	if s.Issuer == "" || s.Audience == "" {
		return nil, errors.New("identity: issuer and audience must be set")
	}
	return &Verifier{key: key, parser: jwt.NewParser(
		jwt.WithValidMethods(algorithms),
		jwt.WithIssuer(s.Issuer),
		jwt.WithAudience(s.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(clockSkew),
		jwt.WithTimeFunc(s.Now),
		jwt.WithStrictDecoding(),
	)}, nil
}

// Verify reads the value of an Authorization header. Errors are ErrUnauthenticated, ErrInvalid and ErrNoKeys.
func (v *Verifier) Verify(authorization string) (*Identity, error) {
	token, ok := bearer(authorization)
	if !ok {
		return nil, fmt.Errorf("%w: no bearer token", ErrUnauthenticated)
	}
	var c claims
	if _, err := v.parser.ParseWithClaims(token, &c, v.key); err != nil {
		if errors.Is(err, ErrNoKeys) {
			return nil, ErrNoKeys
		}
		return nil, errors.Join(ErrUnauthenticated, err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return nil, fmt.Errorf("%w: payload", ErrUnauthenticated) // the parser has just read it
	}
	return c.identity(payload)
}

// bearer cuts the scheme, which is compared without case (RFC 9110), from the token.
func bearer(header string) (string, bool) {
	const scheme = "bearer "
	if len(header) <= len(scheme) || len(header) > maxToken || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	return header[len(scheme):], true
}
