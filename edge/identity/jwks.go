package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// How the provider's keys are kept fresh: on a period; sooner while there are none or the last fetch
// failed; and when a token names a key nobody knows, but then not oftener than once in unknownEvery, so
// that made-up key ids cannot drive it.
const (
	refreshEvery = 10 * time.Minute
	retryEvery   = 2 * time.Second
	unknownEvery = 30 * time.Second
	unknownWait  = time.Second // longest wait of a token for the fetch that it caused
	fetchTimeout = 5 * time.Second
)

// asymmetric are the algorithms that a JWK set may be used with.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// Reasons to refuse a token for its key.
var (
	errKey = errors.New("key")
	// ErrNoKeys: the provider's keys never came. That is no word about the token (503, not 401).
	ErrNoKeys = errors.New("the identity provider's keys are not there yet")
)

// publicKey is one key of a set and the only algorithm that it verifies.
type publicKey struct {
	key       any
	algorithm string
}

// JWKS keeps the public keys of a JWK set. Run is its one goroutine; a set that cannot be fetched leaves
// the keys as they were.
type JWKS struct {
	url     string
	clock   clock.Clock
	log     *slog.Logger
	http    http.Client
	fetches *prometheus.CounterVec

	keys   atomic.Pointer[map[string]publicKey] // nil until the first fetch
	wanted chan struct{}                        // room for one

	mu      sync.Mutex
	asked   time.Time     // when an unknown key last caused a fetch
	pending chan struct{} // closed at the end of that fetch
	next    chan struct{} // closed at the end of the fetch that is under way or begins next
}

// NewJWKS returns the keys of url and a verifier by them. It starts without the provider if it must; until
// Run has fetched the keys once, Verify answers ErrNoKeys.
func NewJWKS(s Settings, url string, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*JWKS, *Verifier, error) {
	k := &JWKS{
		url: url, clock: clk, log: log, http: http.Client{Timeout: fetchTimeout},
		wanted: make(chan struct{}, 1), next: make(chan struct{}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_identity_fetches_total", Help: "Fetches of the identity provider's keys, by outcome.",
		}, []string{"outcome"}),
	}
	reg.MustRegister(k.fetches)
	v, err := newVerifier(s, asymmetric, k.keyOf)
	return k, v, err
}

// Run fetches the keys again and again until ctx ends, which is the only way it ends.
func (k *JWKS) Run(ctx context.Context) error {
	defer k.http.CloseIdleConnections()
	for {
		pause := refreshEvery
		if err := k.fetch(ctx); err != nil && ctx.Err() == nil {
			pause = retryEvery
			k.log.WarnContext(ctx, "keys of the identity provider could not be fetched; those from before are used",
				slog.String(telemetry.Event, "jwks_refresh_failed"), slog.Any(telemetry.Error, err))
		}
		timer := k.clock.NewTimer(pause - rand.N(pause/4)) // edges do not come together
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		case <-k.wanted:
			timer.Stop()
		}
	}
}

// Fault is why tokens cannot be verified yet; "" when they can.
func (k *JWKS) Fault() string {
	if k.keys.Load() == nil {
		return ErrNoKeys.Error()
	}
	return ""
}

// fetch reads the set once and, if that succeeds, goes by it from now on: what is not in it any more
// verifies nothing.
func (k *JWKS) fetch(ctx context.Context) error {
	k.mu.Lock()
	done := k.next
	k.mu.Unlock()
	keys, err := k.get(ctx)
	outcome := "failed"
	if err == nil {
		k.keys.Store(&keys)
		outcome = "ok"
	}
	k.fetches.WithLabelValues(outcome).Inc()
	k.mu.Lock()
	k.next = make(chan struct{})
	k.mu.Unlock()
	close(done)
	return err
}

// keyOf finds a token's key by its key id and refuses every algorithm but the key's own.
func (k *JWKS) keyOf(algorithm, kid string) (any, error) {
	if kid == "" {
		return nil, fmt.Errorf("%w: the token names none", errKey)
	}
	one, ok := k.find(kid)
	if !ok && k.await() {
		one, ok = k.find(kid)
	}
	switch {
	case k.keys.Load() == nil:
		return nil, ErrNoKeys
	case !ok:
		return nil, fmt.Errorf("%w: nobody knows it", errKey)
	case algorithm != one.algorithm:
		return nil, fmt.Errorf("%w: it is not for this algorithm", errKey)
	}
	return one.key, nil
}

func (k *JWKS) find(kid string) (publicKey, bool) {
	keys := k.keys.Load()
	if keys == nil {
		return publicKey{}, false
	}
	one, ok := (*keys)[kid]
	return one, ok
}

// await asks for a fetch because of a key that nobody knows, and waits for its end, but not for long; so
// do others that come meanwhile. It is false at once when an unknown key had a fetch a moment ago: only a
// rotation is waited for.
func (k *JWKS) await() bool {
	fetched := k.demand()
	if fetched == nil {
		return false
	}
	timer := k.clock.NewTimer(unknownWait)
	defer timer.Stop()
	select {
	case <-fetched:
		return true
	case <-timer.C():
		return false
	}
}

// demand is closed when the fetch for unknown keys ends; nil when there is to be none now.
func (k *JWKS) demand() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	if !k.asked.IsZero() && now.Sub(k.asked) < unknownEvery {
		select {
		case <-k.pending:
			return nil
		default:
			return k.pending
		}
	}
	k.asked, k.pending = now, k.next
	select {
	case k.wanted <- struct{}{}:
	default:
	}
	return k.pending
}
