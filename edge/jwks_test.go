package edge

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/internal/testkit"
)

// An edge whose identity provider is not there says that it cannot know, and is not ready; once the keys
// came it serves, and the edge's stop waits for whoever fetches them.
func TestIdentityProvider(t *testing.T) {
	r := start(t)
	seed := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	var there atomic.Bool
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !there.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		public, _ := seed.Public().(ed25519.PublicKey)
		_, _ = fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(provider.Close)
	second := *r
	second.run(func(c *Config) { c.Identity.SecretFile, c.Identity.JWKSURL = "", provider.URL })
	user := celltest.Homed("jutta", 1, 0, 2)[0]
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": issuer, "aud": audience, "sub": user, "exp": now().Add(time.Hour).Unix()})
	token.Header["kid"] = "k"
	signed, err := token.SignedString(seed)
	if err != nil {
		t.Fatal(err)
	}
	ready := func() int {
		res, err := http.Get(second.metrics + "/readyz") //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	second.until(func() error {
		res, body := second.raw(http.MethodPost, permitPath, "", bearer(signed))
		if res.StatusCode != 503 || second.code(body) != "NOT_READY" || res.Header.Get("Retry-After") == "" || contains(body, "routes") {
			return fmt.Errorf("without keys: %d %s", res.StatusCode, body)
		}
		return nil
	})
	if s := ready(); s != http.StatusServiceUnavailable {
		t.Errorf("ready without keys: %d", s)
	}
	there.Store(true)
	second.until(func() error {
		if res, body := second.raw(http.MethodPost, permitPath, "", bearer(signed)); res.StatusCode != 201 {
			return fmt.Errorf("with keys: %d %s", res.StatusCode, body)
		}
		return nil
	})
	if s := ready(); s != http.StatusOK {
		t.Errorf("not ready with keys: %d", s)
	}
	if res, _ := second.raw(http.MethodPost, permitPath, "", bearer(r.token(user))); res.StatusCode != 401 {
		t.Errorf("a token by a shared secret: %d", res.StatusCode)
	}
	if second.counter(`cellquota_edge_identity_fetches_total{outcome="ok"}`) == 0 || second.counter(`cellquota_edge_identity_fetches_total{outcome="failed"}`) == 0 {
		t.Error("fetches are not counted")
	}
}

// until waits for what a client sees.
func (r *rig) until(check func() error) {
	r.t.Helper()
	testkit.Eventually(r.t, 15*time.Second, check)
}
