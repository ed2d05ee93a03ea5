package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cellquota/cellquota/edge/identity"
	"github.com/cellquota/cellquota/internal/clock"
)

var at = time.Unix(1_800_000_000, 0)

func settings() identity.Settings {
	return identity.Settings{Issuer: "iss", Audience: "aud", Now: func() time.Time { return at }}
}

func claims(edit ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{"iss": "iss", "aud": "aud", "sub": "alice", "exp": at.Add(time.Minute).Unix()}
	for _, f := range edit {
		f(c)
	}
	return c
}

func sign(t *testing.T, m jwt.SigningMethod, key any, kid string, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(m, c)
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + s
}

func hs(t *testing.T, secret string) *identity.Verifier {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := identity.NewHS256(settings(), file)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var secret = strings.Repeat("s", 32)

func TestClaims(t *testing.T) {
	v := hs(t, secret)
	who, err := v.Verify(sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(func(c jwt.MapClaims) {
		c["home_region"], c["home_region_since"], c["device_id"], c["risk_tier"] = "east", at.Unix(), "d", "low"
		c["list"], c["number"], c["yes"], c["object"], c["nothing"] = []any{"a", 1, map[string]any{}}, 7, true, map[string]any{"a": 1}, nil
		c["aud"] = []string{"x", "aud"}
	})))
	if err != nil {
		t.Fatal(err)
	}
	if who.User != "alice" || who.HomeRegion != "east" || !who.Since.Equal(at) || who.DeviceID != "d" || who.RiskTier != "low" {
		t.Errorf("%+v", who)
	}
	for name, want := range map[string]string{"list": "a,1", "number": "7", "yes": "true", "object": "", "nothing": "", "absent": "", "device_id": "d"} {
		if got := strings.Join(who.Values(name), ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, edit := range map[string]func(jwt.MapClaims){
		"device": func(c jwt.MapClaims) { c["device_id"] = strings.Repeat("d", 129) },
		"region": func(c jwt.MapClaims) { c["home_region"] = "a\nb" },
		"tier":   func(c jwt.MapClaims) { c["risk_tier"] = "a\u2028b" },
		"user":   func(c jwt.MapClaims) { c["sub"] = "a b" },
	} {
		if _, err := v.Verify(sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(edit))); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExpiry(t *testing.T) {
	v := hs(t, secret)
	for name, row := range map[string]struct {
		edit func(jwt.MapClaims)
		ok   bool
	}{
		"no exp":       {func(c jwt.MapClaims) { delete(c, "exp") }, false},
		"just expired": {func(c jwt.MapClaims) { c["exp"] = at.Add(-2 * time.Second).Unix() }, false},
		"within skew":  {func(c jwt.MapClaims) { c["exp"] = at.Unix() }, true},
		"not yet":      {func(c jwt.MapClaims) { c["nbf"] = at.Add(time.Minute).Unix() }, false},
		"no issuer":    {func(c jwt.MapClaims) { delete(c, "iss") }, false},
		"no audience":  {func(c jwt.MapClaims) { delete(c, "aud") }, false},
	} {
		_, err := v.Verify(sign(t, jwt.SigningMethodHS256, []byte(secret), "", claims(row.edit)))
		if (err == nil) != row.ok || (!row.ok && !errors.Is(err, identity.ErrUnauthenticated)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What two readers could read in two ways, or asks for what nobody understands, is no token.
func TestOddTokens(t *testing.T) {
	v := hs(t, secret)
	b64 := base64.RawURLEncoding.EncodeToString
	make3 := func(head, body string) string {
		text := b64([]byte(head)) + "." + b64([]byte(body))
		mac, err := jwt.SigningMethodHS256.Sign(text, []byte(secret))
		must(t, err)
		return "Bearer " + text + "." + b64(mac)
	}
	const head, exp = `{"alg":"HS256"}`, `"iss":"iss","aud":"aud","exp":1800000060`
	if _, err := v.Verify(make3(head, `{"sub":"alice",`+exp+`}`)); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][2]string{
		"subject twice":   {head, `{"sub":"alice","sub":"bob",` + exp + `}`},
		"algorithm twice": {`{"alg":"none","alg":"HS256"}`, `{"sub":"alice",` + exp + `}`},
		"crit":            {`{"alg":"HS256","crit":["b64"],"b64":false}`, `{"sub":"alice",` + exp + `}`},
		"no algorithm":    {`{}`, `{"sub":"alice",` + exp + `}`},
		"trailing":        {head, `{"sub":"alice",` + exp + `}{}`},
		"array":           {head, `["alice"]`},
		"exp as text":     {head, `{"sub":"alice","iss":"iss","aud":"aud","exp":"never"}`},
	} {
		if _, err := v.Verify(make3(row[0], row[1])); !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := make3(head, `{"sub":"alice",`+exp+`}`)
	for _, bad := range []string{good + ".x", good + "=", good[:len(good)-1], strings.Replace(good, ".", "..", 1), good + "\n"} {
		if _, err := v.Verify(bad); !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("%.20s…: %v", bad, err)
		}
	}
	if _, err := v.Verify(make3(head, `{"sub":"alice","aud":["x","aud"],"iss":"iss","exp":1800000060.5}`)); err != nil {
		t.Errorf("many audiences: %v", err)
	}
	if _, err := v.Verify(make3(head, `{"SUB":"bob","sub":"alice",`+exp+`}`)); err != nil {
		t.Errorf("another claim: %v", err)
	}
}

func TestOneAlgorithmPerKey(t *testing.T) {
	v := hs(t, secret)
	for _, m := range []jwt.SigningMethod{jwt.SigningMethodHS384, jwt.SigningMethodHS512} {
		if _, err := v.Verify(sign(t, m, []byte(secret), "", claims())); !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("%s with an HS256 secret: %v", m.Alg(), err)
		}
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.NewHS256(settings(), short); err == nil {
		t.Error("a short secret is accepted")
	}
}

func TestJWKS(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	ec, err := ecKey.PublicKey.Bytes()
	must(t, err)
	jwks := map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": "rsa", "n": b64(rsaKey.N.Bytes()), "e": b64(big.NewInt(int64(rsaKey.E)).Bytes())},
		{"kty": "RSA", "kid": "ps", "alg": "PS256", "n": b64(rsaKey.N.Bytes()), "e": b64(big.NewInt(int64(rsaKey.E)).Bytes())},
		{"kty": "EC", "crv": "P-256", "kid": "ec", "x": b64(ec[1:33]), "y": b64(ec[33:])},
		{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(edKey.Public().(ed25519.PublicKey))},
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(jwks) }))
	t.Cleanup(server.Close)
	_, v := jwksOf(t, server.URL, clock.System())
	for name, row := range map[string]struct {
		method jwt.SigningMethod
		key    any
		kid    string
		ok     bool
	}{
		"RS256":               {jwt.SigningMethodRS256, rsaKey, "rsa", true},
		"ES256":               {jwt.SigningMethodES256, ecKey, "ec", true},
		"EdDSA":               {jwt.SigningMethodEdDSA, crypto.Signer(edKey), "ed", true},
		"PS256, named":        {jwt.SigningMethodPS256, rsaKey, "ps", true},
		"RS512 with RS256's":  {jwt.SigningMethodRS512, rsaKey, "rsa", false},
		"PS256 with RS256's":  {jwt.SigningMethodPS256, rsaKey, "rsa", false},
		"RS256 with PS256's":  {jwt.SigningMethodRS256, rsaKey, "ps", false},
		"ES256 with Ed's":     {jwt.SigningMethodES256, ecKey, "ed", false},
		"no key id":           {jwt.SigningMethodRS256, rsaKey, "", false},
		"unknown key":         {jwt.SigningMethodRS256, rsaKey, "x", false},
		"HS256 by public key": {jwt.SigningMethodHS256, rsaKey.N.Bytes(), "rsa", false},
	} {
		_, err := v.Verify(sign(t, row.method, row.key, row.kid, claims()))
		if (err == nil) != row.ok || (!row.ok && !errors.Is(err, identity.ErrUnauthenticated)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzVerify(f *testing.F) {
	v, err := identity.NewHS256(settings(), func() string {
		file := filepath.Join(f.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			f.Fatal(err)
		}
		return file
	}())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", "Bearer", "Bearer a.b.c", "bearer ..", "Bearer eyJhbGciOiJub25lIn0.e30."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if _, err := v.Verify(header); err == nil {
			t.Fatalf("%q verifies", header) // nobody but us has the secret
		}
	})
}
