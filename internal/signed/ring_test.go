package signed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func ringOf(t *testing.T, dir string) *Ring {
	t.Helper()
	r, err := LoadRing(dir, UsePermit)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func signer(r *Ring, now time.Time) string { _, kid := r.Signer(now); return kid }

// TestRingSignsWithTheNewestThatHasBegun: by states; without any, by the names.
func TestRingSignsWithTheNewestThatHasBegun(t *testing.T) {
	t.Parallel()
	r := NewRing(keySet(t, UsePermit, keyOne, keyTwo, keyTwo+"3"))
	later := at.Add(time.Minute)
	for _, row := range []struct {
		name   string
		states []Status
		now    time.Time
		want   string
	}{
		{"nothing was heard", nil, at, "k3"},
		{"one is active", []Status{{"k1", Active, at}, {"k3", Pending, time.Time{}}}, at, "k1"},
		{"the newer one", []Status{{"k2", Active, at}, {"k1", Active, later}}, later, "k1"},
		{"the newer one has not begun", []Status{{"k2", Active, at}, {"k1", Active, later}}, at, "k2"},
		{"the active one is not here", []Status{{"k9", Active, at}, {"k2", Retiring, at}}, at, "k3"},
		{"all but one is revoked", []Status{{"k3", Revoked, at}, {"k1", Revoked, at}}, at, "k2"},
	} {
		if err := r.Follow(row.states); err != nil {
			t.Fatal(err)
		}
		if got := signer(r, row.now); got != row.want {
			t.Errorf("%s: %q signs, want %q", row.name, got, row.want)
		}
	}
}

// TestANewFileDoesNotSignBeforeItIsSpread: before the first rotation of a use a new file is
// at one process first; what that one signs must verify at the one that lacks it.
func TestANewFileDoesNotSignBeforeItIsSpread(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		writeFile(t, dir, "permit", "k1", keyOne)
	}
	first, last := ringOf(t, dirs[0]), ringOf(t, dirs[1])
	writeFile(t, dirs[0], "permit", "k2", keyTwo)
	for name, hear := range map[string]func() error{
		"read again":    first.Reload,
		"told nothing":  func() error { return first.Follow(nil) },
		"told of K0":    func() error { return first.Follow([]Status{{KID: "k0", State: Revoked}}) },
		"first pending": func() error { return first.Follow([]Status{{KID: "k2", State: Pending}}) },
	} {
		if err := hear(); err != nil {
			t.Fatal(err)
		}
		keys, by := first.Signer(at)
		token, err := somePermit.Sign(keys, by)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyPermit(token, last.Keys()); err != nil {
			t.Errorf("%s: what %s signed is refused: %v", name, by, err)
		}
	}
	if err := os.Remove(filepath.Join(dirs[0], "permit", "k1")); err != nil {
		t.Fatal(err)
	}
	if err := first.Reload(); err != nil || signer(first, at) != "k2" {
		t.Errorf("its file is gone: %v, %q signs", err, signer(first, at))
	}
}

// TestRevokedStaysRevoked: over a restart that hears nothing, over states that have
// forgotten it, and for another process of the same directory.
func TestRevokedStaysRevoked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "permit", "k1", keyOne)
	writeFile(t, dir, "permit", "k2", keyTwo)
	r, other := ringOf(t, dir), ringOf(t, dir)
	token, err := somePermit.Sign(r.Keys(), "k2")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Follow([]Status{{KID: "k1", State: Active}, {KID: "k2", State: Revoked}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Follow([]Status{{KID: "k1", State: Active}, {KID: "k2", State: Active}}); err != nil {
		t.Fatal(err)
	}
	if err := other.Reload(); err != nil {
		t.Fatal(err)
	}
	for name, ring := range map[string]*Ring{"forgotten by etcd": r, "another process": other, "restarted": ringOf(t, dir)} {
		if _, err := VerifyPermit(token, ring.Keys()); err == nil {
			t.Errorf("%s: the revoked key verifies", name)
		}
		if got := signer(ring, at); got != "k1" {
			t.Errorf("%s: %q signs", name, got)
		}
	}
	if names := r.Names(); !slices.Equal(names, []string{"permit/k1", "permit/k2"}) {
		t.Errorf("files held: %v", names)
	}
}

// TestUnreadableFileIsNamed: what was held stays in use, and the fault goes when the
// file does.
func TestUnreadableFileIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "permit", "k1", keyOne)
	r := ringOf(t, dir)
	writeFile(t, dir, "permit", "k2", "short")
	if err := r.Reload(); err == nil || !strings.Contains(r.Fault(), filepath.Join("permit", "k2")) || signer(r, at) != "k1" {
		t.Fatalf("reload: %v, fault %q, %q signs", err, r.Fault(), signer(r, at))
	}
	if err := os.Remove(filepath.Join(dir, "permit", "k2")); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(); err != nil || r.Fault() != "" {
		t.Fatalf("after its removal: %v, %q", err, r.Fault())
	}
	if err := r.Follow([]Status{{KID: "k7", State: Active}}); err != nil || !strings.Contains(r.Fault(), "k7") {
		t.Fatalf("an ACTIVE key that is not here: %v, %q", err, r.Fault())
	}
}
