package identity_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/edge/identity"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// jwksOf runs the keys of url until the test ends and waits for the first fetch.
func jwksOf(t *testing.T, url string, clk clock.Clock) (*identity.JWKS, *identity.Verifier) {
	t.Helper()
	k, v, _ := runJWKS(t, url, clk)
	testkit.Eventually(t, 5*time.Second, func() error {
		if fault := k.Fault(); fault != "" {
			return errors.New(fault)
		}
		return nil
	})
	return k, v
}

func runJWKS(t *testing.T, url string, clk clock.Clock) (*identity.JWKS, *identity.Verifier, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	k, v, err := identity.NewJWKS(settings(), url, clk, slog.New(slog.DiscardHandler), registry)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
	return k, v, registry
}

// provider is an identity provider whose keys change.
type provider struct {
	*httptest.Server
	fetched atomic.Int64
	mu      sync.Mutex
	body    string // "": it fails
}

func newProvider(t *testing.T) *provider {
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.fetched.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.body == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(p.body))
	}))
	t.Cleanup(p.Close)
	return p
}

// serve answers with the keys of these ids from now on.
func (p *provider) serve(kids ...string) {
	var keys []map[string]string
	for _, kid := range kids {
		public, _ := edKey(kid).Public().(ed25519.PublicKey)
		keys = append(keys, map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": base64.RawURLEncoding.EncodeToString(public)})
	}
	body, _ := json.Marshal(map[string]any{"keys": keys})
	p.say(string(body))
}

func (p *provider) say(body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body = body
}

func edKey(kid string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%32.32s", kid)))
}

func by(t *testing.T, kid string) string {
	return sign(t, jwt.SigningMethodEdDSA, edKey(kid), kid, claims())
}

// The provider changes its keys: a token of the new one is good at once, of one that is gone no more, and
// unknown keys make no more than one fetch in their time.
func TestRotation(t *testing.T) {
	p, clk := newProvider(t), clock.NewManual(at)
	p.serve("old")
	_, v := jwksOf(t, p.URL, clk)
	verify := func(kid string) error { _, err := v.Verify(by(t, kid)); return err }
	must(t, verify("old"))
	p.serve("old", "new")
	var all sync.WaitGroup
	for range 20 { // together, as they come
		all.Go(func() { must(t, verify("new")) })
	}
	all.Wait()
	fetched := p.fetched.Load()
	for i := range 50 {
		if err := verify(fmt.Sprint("made-up-", i)); !errors.Is(err, identity.ErrUnauthenticated) {
			t.Fatalf("a made-up key: %v", err)
		}
	}
	if n := p.fetched.Load(); n != fetched {
		t.Errorf("made-up keys caused %d fetches", n-fetched)
	}
	p.serve("new", "newest")
	clk.Advance(30 * time.Second)
	must(t, verify("newest"))
	if err := verify("old"); !errors.Is(err, identity.ErrUnauthenticated) {
		t.Errorf("a key that is gone verifies: %v", err)
	}
	p.serve("last")
	clk.Advance(10 * time.Minute)
	testkit.Eventually(t, 5*time.Second, func() error { return verify("last") })
}

// A provider that is down, or answers nonsense, takes no key away; before the first answer nobody is told
// that his token is bad.
func TestProviderDown(t *testing.T) {
	p, clk := newProvider(t), clock.NewManual(at)
	k, v, registry := runJWKS(t, p.URL, clk)
	failed := func(n float64) func() error {
		return func() error {
			want := fmt.Sprintf("# HELP cellquota_edge_identity_fetches_total Fetches of the identity provider's keys, by outcome.\n# TYPE cellquota_edge_identity_fetches_total counter\ncellquota_edge_identity_fetches_total{outcome=\"failed\"} %v\n", n)
			return testutil.GatherAndCompare(registry, strings.NewReader(want))
		}
	}
	testkit.Eventually(t, 5*time.Second, failed(1))
	testkit.Eventually(t, 5*time.Second, func() error {
		go clk.Advance(time.Second) // the wait for the unknown key
		_, err := v.Verify(by(t, "a"))
		if !errors.Is(err, identity.ErrNoKeys) || errors.Is(err, identity.ErrUnauthenticated) {
			return fmt.Errorf("without keys: %w", err)
		}
		return nil
	})
	if k.Fault() == "" {
		t.Error("no fault without keys")
	}
	p.serve("a")
	testkit.Eventually(t, 5*time.Second, func() error {
		clk.Advance(2 * time.Second)
		_, err := v.Verify(by(t, "a"))
		return err
	})
	for _, body := range []string{"", "<html>", `{"keys":[]}`, `{"keys":` + strings.Repeat("[", 10_000) + `}`, strings.Repeat(" ", 2<<20)} {
		p.say(body)
		before := p.fetched.Load()
		testkit.Eventually(t, 5*time.Second, func() error {
			clk.Advance(10 * time.Minute)
			if p.fetched.Load() == before {
				return errors.New("not fetched again")
			}
			return nil
		})
		if _, err := v.Verify(by(t, "a")); err != nil {
			t.Errorf("after %.10q: %v", body, err)
		}
	}
}

// A set may hold what is of no use to us; that alone is passed over.
func TestSetsThatAreOddInParts(t *testing.T) {
	p := newProvider(t)
	public, _ := edKey("good").Public().(ed25519.PublicKey)
	x := base64.RawURLEncoding.EncodeToString(public)
	p.say(`{"keys":[
		{"kty":"OKP","crv":"Ed25519","kid":"good","x":"` + x + `","x5u":"http://127.0.0.1:1/"},
		{"kty":"OKP","crv":"Ed25519","kid":"enc","use":"enc","x":"` + x + `"},
		{"kty":"OKP","crv":"Ed25519","x":"` + x + `"},
		{"kty":"oct","kid":"secret","k":"c2VjcmV0"},
		{"kty":"RSA","kid":"broken","n":"!","e":"AQAB"},
		{"kty":"OKP","crv":"Ed25519","kid":"twice","x":"` + x + `"},
		{"kty":"OKP","crv":"Ed25519","kid":"twice","x":"` + x + `"}]}`)
	_, v := jwksOf(t, p.URL, clock.NewManual(at))
	for kid, good := range map[string]bool{"good": true, "enc": false, "": false, "twice": false} {
		if _, err := v.Verify(sign(t, jwt.SigningMethodEdDSA, edKey("good"), kid, claims())); (err == nil) != good {
			t.Errorf("%q: %v", kid, err)
		}
	}
	if _, err := v.Verify(sign(t, jwt.SigningMethodHS256, []byte("secret"), "secret", claims())); err == nil {
		t.Error("a symmetric key of a public set verifies")
	}
}
