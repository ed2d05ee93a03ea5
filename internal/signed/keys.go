package signed

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// Use is what a key is for; it is the name of its directory below keys_dir.
type Use string

// The uses of keys.
const (
	UsePermit  Use = "permit"
	UseReceipt Use = "receipt"
	UsePayment Use = "payment"
)

const (
	minKeyBytes = 16
	maxKeyBytes = 4096
	maxKeys     = 64 // per use
)

var (
	// ErrUnknownKey is returned by Sign for a key id that the set does not hold.
	ErrUnknownKey = errors.New("unknown key id")
	// ErrKeys is behind every error of LoadKeys and Reload: the directory cannot
	// be read, is empty, or a file in it is no key.
	ErrKeys = errors.New("cannot load keys")
)

// KeySet is the keys of one use. It is safe for concurrent use; Reload swaps all
// keys at once.
type KeySet struct {
	use  Use
	dir  string
	keys atomic.Pointer[map[string][]byte] // never changed in place
}

// LoadKeys reads keysDir/USE/*. Files whose name begins with a dot are passed
// over (mounted secrets have such links); any other file must be a key, named by
// [A-Za-z0-9_-]{1,64}. Errors wrap ErrKeys and name the file, never its content.
func LoadKeys(keysDir string, use Use) (*KeySet, error) {
	s := &KeySet{use: use, dir: filepath.Join(keysDir, string(use))}
	return s, s.Reload()
}

// NewKeySet is a set held in memory, for programs that mint their own keys. The
// rules for names and sizes are those of files. Reload keeps it as it is.
func NewKeySet(use Use, keys map[string][]byte) (*KeySet, error) {
	copied := make(map[string][]byte, len(keys))
	for kid, key := range keys {
		if err := checkKey(kid, key); err != nil {
			return nil, fmt.Errorf("%w: %s key %q: %w", ErrKeys, use, kid, err)
		}
		copied[kid] = bytes.Clone(key)
	}
	s := &KeySet{use: use}
	s.keys.Store(&copied)
	return s, nil
}

// Reload reads the directory again: new files are added, removed ones forgotten.
// When it fails, the keys stay as they were.
func (s *KeySet) Reload() error {
	if s.dir == "" {
		return nil
	}
	keys, err := readKeys(s.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	s.keys.Store(&keys)
	return nil
}

func readKeys(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	keys := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		name := filepath.Join(dir, e.Name())
		key, err := readKey(name)
		if err != nil {
			return nil, err
		}
		if err := checkKey(e.Name(), key); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		keys[e.Name()] = key
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%s: holds %d keys, must hold 1 to %d", dir, len(keys), maxKeys)
	}
	return keys, nil
}

func readKey(name string) ([]byte, error) {
	info, err := os.Stat(name) // follows links
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyBytes {
		return nil, fmt.Errorf("%s: a key is a regular file of at most %d bytes", name, maxKeyBytes)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	return bytes.TrimSuffix(text, []byte("\r")), nil
}

func checkKey(kid string, key []byte) error {
	if !isKid(kid) {
		return errors.New("a key id is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	if len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return fmt.Errorf("a key has %d to %d bytes, this one has %d", minKeyBytes, maxKeyBytes, len(key))
	}
	return nil
}

func isKid(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// Kids are the ids of the keys held, sorted.
func (s *KeySet) Kids() []string { return slices.Sorted(maps.Keys(*s.keys.Load())) }

// Has reports whether the set holds kid.
func (s *KeySet) Has(kid string) bool { _, held := (*s.keys.Load())[kid]; return held }

// Only is a set of those of kids that s holds now; a later Reload of s does not
// reach it. Verify with it refuses what was signed under any other key, which is
// how a revoked key whose file is still there is kept out.
func (s *KeySet) Only(kids ...string) *KeySet {
	all, some := *s.keys.Load(), map[string][]byte{}
	for _, kid := range kids {
		if key, held := all[kid]; held {
			some[kid] = key
		}
	}
	only := &KeySet{use: s.use}
	only.keys.Store(&some)
	return only
}

// String names use and kids; it never shows a key.
func (s *KeySet) String() string { return fmt.Sprintf("%s keys %v", s.use, s.Kids()) }

// mac is the HMAC-SHA256 of the parts in a row under kid.
func (s *KeySet) mac(kid string, parts ...[]byte) ([]byte, bool) {
	key, held := (*s.keys.Load())[kid]
	if !held {
		return nil, false
	}
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil), true
}
