package edge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// benchRound is how many calls each side answers in a pair.
const benchRound = 20_000

// soldOut is an edge between two cells without a unit.
func soldOut(b *testing.B, edit ...func(*Config)) *rig {
	b.Helper()
	r := start(b)
	for _, c := range r.cells {
		c.Script(func(a *cq.Ask) *cq.Answer {
			if a.GetPrecheck() != nil {
				return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR}
			}
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT}
		})
	}
	other := *r
	r = &other
	r.run(append([]func(*Config){func(c *Config) { c.SoldOut.TTL, c.Limits.UserRate = time.Minute, 0 }}, edit...)...)
	r.level.Set(slog.LevelInfo)
	return r
}

// mark has the edge see both cells empty, and returns an answer out of its memory.
func (r *rig) mark(b *testing.B, sign func(user string) string) (http.Header, int, []byte) {
	b.Helper()
	var header http.Header
	var text string
	r.until(func() error {
		for i := range 8 { // both cells are asked
			user := fmt.Sprint("marker-", i)
			res, body := r.raw(http.MethodPost, askPath, ask("r1", 1, r.mintedPermit(user)), map[string]string{"Authorization": "Bearer " + sign(user)})
			if res.StatusCode != http.StatusConflict {
				return fmt.Errorf("%d %s", res.StatusCode, body)
			}
			header, text = res.Header, body
		}
		return nil
	})
	header = header.Clone()
	header.Del("Date")
	header.Del("Content-Length")
	return header, http.StatusConflict, []byte(text)
}

func (r *rig) addr() string { return r.edge.listener.Addr().String() }

// BenchmarkSoldOut: TEMP_SOLD_OUT answers per second out of the cache, the first request of each user with a
// token by a shared secret, against a bare net/http handler that reads and parses the same body and writes
// the same bytes.
func BenchmarkSoldOut(b *testing.B) {
	r := soldOut(b)
	header, status, body := r.mark(b, r.hs256)
	plain, next := bare(b, header, status, body), 0
	requests := r.users(&next, benchRound, r.hs256)
	testkit.Against(b, "net-http", 0.5, func(int) float64 {
		requests = r.users(&next, benchRound, r.hs256)
		r.mark(b, r.hs256)
		return blast(b, r.addr(), requests, status)
	}, func(int) float64 { return blast(b, plain, requests, status) })
}

// BenchmarkSoldOutRepeats: the same, each user's own request again and again.
func BenchmarkSoldOutRepeats(b *testing.B) {
	r := soldOut(b)
	header, status, body := r.mark(b, r.hs256)
	plain, next := bare(b, header, status, body), 0
	few := r.users(&next, 200, r.hs256)
	var requests [][]byte
	for len(requests) < benchRound {
		requests = append(requests, few...)
	}
	testkit.Against(b, "net-http", 0.5, func(int) float64 {
		r.mark(b, r.hs256)
		return blast(b, r.addr(), requests, status)
	}, func(int) float64 { return blast(b, plain, requests, status) })
}

// BenchmarkSoldOutRS256 and ES256: the same as BenchmarkSoldOut with tokens by a provider's keys.
func BenchmarkSoldOutRS256(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	soldOutByProvider(b, jwt.SigningMethodRS256, key, fmt.Sprintf(`{"kty":"RSA","kid":"k","n":%q,"e":%q}`, b64(key.N.Bytes()), b64(big.NewInt(int64(key.E)).Bytes())))
}

func BenchmarkSoldOutES256(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		b.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	soldOutByProvider(b, jwt.SigningMethodES256, key, fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":"k","x":%q,"y":%q}`, b64(point[1:33]), b64(point[33:])))
}

func soldOutByProvider(b *testing.B, method jwt.SigningMethod, key any, jwk string) {
	b.Helper()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"keys":[%s]}`, jwk) }))
	b.Cleanup(provider.Close)
	r := soldOut(b, func(c *Config) { c.Identity.SecretFile, c.Identity.JWKSURL = "", provider.URL })
	sign := func(user string) string {
		token := jwt.NewWithClaims(method, jwt.MapClaims{"iss": issuer, "aud": audience, "sub": user, "exp": now().Add(time.Hour).Unix()})
		token.Header["kid"] = "k"
		s, err := token.SignedString(key)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	header, status, body := r.mark(b, sign)
	plain, next := bare(b, header, status, body), 0
	requests := r.users(&next, benchRound/4, sign)
	testkit.Against(b, "net-http", 0.5, func(int) float64 {
		r.mark(b, sign)
		return blast(b, r.addr(), requests, status)
	}, func(int) float64 { return blast(b, plain, requests, status) })
}
