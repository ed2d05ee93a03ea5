package core_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
)

func TestTokenText(t *testing.T) {
	id := core.TokenID("op")
	if id != core.TokenID("op") || id == core.TokenID("op2") || len(id) != 16 || strings.Contains(id, "_") {
		t.Errorf("id %q", id)
	}
	if got, secret, ok := core.SplitToken(core.TokenText(id, "a_b-c")); !ok || got != id || secret != "a_b-c" {
		t.Errorf("%q, %q, %v: a secret may hold underscores", got, secret, ok)
	}
	for _, text := range []string{"", "cq", "cq_x", "cq_x_", "cq__x", "xx_a_b", "Bearer"} {
		if _, _, ok := core.SplitToken(text); ok {
			t.Errorf("%q passed as a token of ours", text)
		}
	}
}

func TestTokenAdmits(t *testing.T) {
	end := asked.Add(time.Hour)
	token := core.Token{ID: "t", Name: "ann", Role: "sre", ExpiresAt: end, Digest: sha256.Sum256([]byte("secret"))}
	if err := token.Check(); err != nil {
		t.Fatal(err)
	}
	revoked, changed := token.Revoke(asked)
	if again, twice := revoked.Revoke(end); !changed || twice || !again.RevokedAt.Equal(asked) {
		t.Errorf("revoked twice: %v, %v, at %s", changed, twice, again.RevokedAt)
	}
	for _, r := range []struct {
		name   string
		token  core.Token
		secret string
		at     time.Time
		want   bool
	}{
		{"the secret", token, "secret", end.Add(-1), true},
		{"another", token, "secreT", asked, false},
		{"none", token, "", asked, false},
		{"at its end", token, "secret", end, false},
		{"revoked", revoked, "secret", asked, false},
		{"no token at all", core.Token{}, "", asked, false},
	} {
		if got, why := r.token.Admits(r.secret, r.at); got != r.want || got == (why != "") {
			t.Errorf("%s: %v %q", r.name, got, why)
		}
	}
	if _, dead := token.Dead(end.Add(-1)); dead {
		t.Error("a token in use is dead")
	}
	if since, dead := token.Dead(end); !dead || !since.Equal(end) {
		t.Errorf("dead %v since %s", dead, since)
	}
	if since, dead := revoked.Dead(asked); !dead || !since.Equal(asked) {
		t.Errorf("revoked: dead %v since %s", dead, since)
	}
}
