package signed

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const keyOne, keyTwo = "0123456789abcdef-one", "0123456789abcdef-two"

func keySet(t testing.TB, use Use, keys ...string) *KeySet {
	t.Helper()
	named := map[string][]byte{}
	for i, key := range keys {
		named[[]string{"k1", "k2", "k3"}[i]] = []byte(key)
	}
	s, err := NewKeySet(use, named)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writeFile(t *testing.T, elem ...string) {
	t.Helper()
	name := filepath.Join(elem[:len(elem)-1]...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(elem[len(elem)-1]), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadKeysCutsOneLineBreak(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "\n", "\r\n"} {
		dir := t.TempDir()
		writeFile(t, dir, "permit", "k1", keyOne+end)
		loaded, err := LoadKeys(dir, UsePermit)
		if err != nil {
			t.Fatal(err)
		}
		token, err := somePermit.Sign(loaded, "k1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyPermit(token, keySet(t, UsePermit, keyOne)); err != nil {
			t.Errorf("a key file ending in %q is another key: %v", end, err)
		}
	}
}

func TestReloadAddsAndForgets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "receipt", "k1", keyOne)
	writeFile(t, dir, "receipt", "..data", "a mounted secret's link")
	s, err := LoadKeys(dir, UseReceipt)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "receipt", "k2", keyTwo)
	if s.Has("k2") {
		t.Fatal("k2 before Reload")
	}
	if err := s.Reload(); err != nil || !slices.Equal(s.Kids(), []string{"k1", "k2"}) {
		t.Fatalf("after adding: %v, %v", s.Kids(), err)
	}
	if err := os.Remove(filepath.Join(dir, "receipt", "k1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil || !slices.Equal(s.Kids(), []string{"k2"}) {
		t.Fatalf("after removing: %v, %v", s.Kids(), err)
	}
	writeFile(t, dir, "receipt", "short", "0123456789abcde")
	if err := s.Reload(); !errors.Is(err, ErrKeys) || !slices.Equal(s.Kids(), []string{"k2"}) {
		t.Fatalf("a failed reload changed the keys: %v, %v", s.Kids(), err)
	}
}

func TestLoadKeysRefuses(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, kid, key, says string }{
		{"short", "k1", "0123456789abcde\n", "16 to 4096 bytes, this one has 15"},
		{"empty", "k1", "", "this one has 0"},
		{"long", "k1", strings.Repeat("x", 5000), "at most 4096"},
		{"dot in the id", "k.1", keyOne, "key id"},
		{"space in the id", "k 1", keyOne, "key id"},
		{"long id", strings.Repeat("k", 65), keyOne, "key id"},
		{"hidden only", ".k1", keyOne, "holds 0 keys"},
		{"a directory", filepath.Join("k1", "deeper"), keyOne, "regular file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, dir, "permit", c.kid, c.key)
			_, err := LoadKeys(dir, UsePermit)
			if !errors.Is(err, ErrKeys) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error = %v, want one that says %q", err, c.says)
			}
			if len(c.key) > 8 && strings.Contains(err.Error(), c.key[:8]) {
				t.Fatalf("the error shows the key: %v", err)
			}
		})
	}
	if _, err := LoadKeys(t.TempDir(), UsePermit); !errors.Is(err, ErrKeys) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := NewKeySet(UsePermit, map[string][]byte{"k1": []byte("short")}); !errors.Is(err, ErrKeys) {
		t.Errorf("short key in memory: %v", err)
	}
}

func TestKeySetShowsNoKey(t *testing.T) {
	t.Parallel()
	if got := keySet(t, UsePermit, keyOne, keyTwo).String(); got != "permit keys [k1 k2]" {
		t.Fatalf("String() = %s", got)
	}
}
