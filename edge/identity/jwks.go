package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// How the provider's keys are kept fresh: on a period, and when a token names a key nobody knows,
// but then not oftener than once in unknownEvery, so that made-up key ids cannot drive it.
const (
	refreshEvery = 10 * time.Minute
	unknownEvery = 30 * time.Second
	fetchTimeout = 5 * time.Second
)

// asymmetric are the algorithms that a JWK set may be used with.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// errKey refuses a token whose key is missing, of the wrong kind or for another algorithm.
var errKey = errors.New("key")

// NewJWKS returns a verifier by the keys of a JWK set that is fetched from url. It starts without
// the provider if it must, refusing tokens until the keys came; its refreshing ends with ctx.
func NewJWKS(ctx context.Context, s Settings, url string, log *slog.Logger) (*Verifier, error) {
	set, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{url}, keyfunc.Override{
		Client:            &http.Client{Timeout: fetchTimeout},
		HTTPTimeout:       fetchTimeout,
		RefreshInterval:   refreshEvery,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(unknownEvery), 1),
		RateLimitWaitMax:  time.Nanosecond, // a customer never waits for the provider's turn
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(ctx context.Context, err error) {
				log.WarnContext(ctx, "keys of the identity provider could not be fetched",
					slog.String(telemetry.Event, "jwks_refresh_failed"), slog.Any(telemetry.Error, err))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("identity: jwks_url: %w", err)
	}
	return newVerifier(s, asymmetric, keyOf(set)) //nolint:contextcheck // the set refreshes itself under its own context
}

// keyOf finds a token's key by its key id and refuses every algorithm but the key's own.
func keyOf(set keyfunc.Keyfunc) jwt.Keyfunc {
	return func(t *jwt.Token) (any, error) {
		kid, ok := t.Header["kid"].(string)
		if !ok || kid == "" {
			return nil, fmt.Errorf("%w: the token names none", errKey)
		}
		key, err := set.Keyfunc(t) // compares the algorithm with the key's, if the key names one
		if err != nil {
			return nil, errors.Join(errKey, err)
		}
		jwk, err := set.Storage().KeyRead(context.Background(), kid)
		if err != nil {
			return nil, errors.Join(errKey, err)
		}
		if named := jwk.Marshal().ALG.String(); named == "" && t.Method.Alg() != algorithmOf(key) {
			return nil, fmt.Errorf("%w: it is not for this algorithm", errKey)
		}
		return key, nil
	}
}

// algorithmOf is the one algorithm of a key that names none.
func algorithmOf(key any) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RS256"
	case ed25519.PublicKey:
		return "EdDSA"
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return "ES256"
		case 384:
			return "ES384"
		case 521:
			return "ES512"
		}
	}
	return ""
}
