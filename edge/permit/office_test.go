package permit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/permit"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

var at = time.Unix(1_800_000_000, 0)

func office(t testing.TB) *permit.Office {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, string(signed.UsePermit)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, string(signed.UsePermit), "k1"), []byte(strings.Repeat("key", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := signed.LoadRing(dir, signed.UsePermit)
	if err != nil {
		t.Fatal(err)
	}
	return permit.New(ring, clock.NewManual(at))
}

// A permit is good for whom and what it was given out for, and has another nonce each time.
func TestIssueAndCheck(t *testing.T) {
	o := office(t)
	one, err := o.Issue("c", "s", "u", at, at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	two, err := o.Issue("c", "s", "u", at, at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.Check(one, "c", "s", "u")
	if err != nil || !p.Expires.Equal(at.Add(time.Minute)) || !p.NotBefore.Equal(at) || one == two {
		t.Errorf("%+v %v", p, err)
	}
	for _, row := range [][3]string{{"x", "s", "u"}, {"c", "x", "u"}, {"c", "s", "x"}} {
		if _, err := o.Check(one, ids.CampaignID(row[0]), ids.SKUID(row[1]), ids.UserID(row[2])); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%v: %v", row, err)
		}
	}
}

// Nobody makes a permit without the key (K55).
func FuzzCheck(f *testing.F) {
	o := office(f)
	good, err := o.Issue("c", "s", "u", at, at.Add(time.Minute))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", good[:len(good)-1], good + "A", "v1.k1.", strings.Replace(good, "k1", "k2", 1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if p, err := o.Check(token, "c", "s", "u"); err == nil && token != good {
			t.Fatalf("%q is a permit: %+v", token, p)
		}
	})
}
