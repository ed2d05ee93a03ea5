package core

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// KeyState is what may be done with a signing key. The words cross the wire.
type KeyState string

// States of keys. A key that etcd does not know verifies as a PENDING one does:
// whoever has heard of a rotation signs at once, and must be believed by those who
// have not (docs/runbooks/keys.md).
const (
	// KeyPending: its files are there; it verifies and signs nothing yet.
	KeyPending KeyState = "PENDING"
	// KeyActive: signs from its not_before, if it is the newest such; verifies.
	KeyActive KeyState = "ACTIVE"
	// KeyRetiring: only verifies.
	KeyRetiring KeyState = "RETIRING"
	// KeyRevoked: verifies nothing, for ever.
	KeyRevoked KeyState = "REVOKED"
	// KeyUnmanaged is a word of lists, never stored: no key of the use has a state.
	KeyUnmanaged KeyState = "UNMANAGED"
)

// MaxKeys bounds the keys of one use, revoked ones included: key files and messages
// have the same bound.
const MaxKeys = 64

// Key is the state of one signing key; its bytes are files.
type Key struct {
	Use, KID string
	State    KeyState
	// NotBefore is when it begins to sign; zero: it never was ACTIVE.
	NotBefore time.Time
	// RotatedBy is the operation that made it ACTIVE, RotatedWith the digest of its
	// parameters; RevokedBy the operation that revoked it.
	RotatedBy, RotatedWith, RevokedBy string
	ModRevision                       int64
}

// Name is "USE/KID", as processes name the keys they have.
func (k Key) Name() string { return k.Use + "/" + k.KID }

// KeyUses lists what keys are for.
func KeyUses() []string { return []string{"permit", "receipt", "payment"} }

var kidGrammar = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckKeyName tells every fault of a key's name.
func CheckKeyName(use, kid string) (v []rpcstatus.Violation) {
	if !slices.Contains(KeyUses(), use) {
		v = append(v, rpcstatus.Violation{Field: "use", Rule: "must be one of " + strings.Join(KeyUses(), ", ")})
	}
	if !kidGrammar.MatchString(kid) {
		v = append(v, rpcstatus.Violation{Field: "kid", Rule: "must be 1 to 64 of A-Z, a-z, 0-9, _ and -"})
	}
	return v
}

// Check verifies a record that was read or is to be stored. ErrBroken.
func (k Key) Check() error {
	known := slices.Contains([]KeyState{KeyPending, KeyActive, KeyRetiring, KeyRevoked}, k.State)
	if len(CheckKeyName(k.Use, k.KID)) > 0 || !known || k.State == KeyActive && k.NotBefore.IsZero() {
		return broken("key %q of use %q in state %q, not before %s", k.KID, k.Use, k.State, k.NotBefore)
	}
	return nil
}

// Rotation asks for a key to become ACTIVE.
type Rotation struct {
	Use, KID    string
	NotBefore   time.Time // zero: now
	OperationID string
	// Missing are the live processes that lack the key's bytes, Silent those of whom
	// nobody knows; Holders is how many there are at all.
	Missing, Silent []string
	Holders         int
	// Held are the key ids of the use that a live process has.
	Held []string
}

func (r Rotation) digest() string {
	return Digest(r.Use, r.KID, fmt.Sprint(r.NotBefore.UnixMilli()))
}

// Rotate makes a key ACTIVE among those of its use, and gives the records that
// change, the key itself first; none for a repeat. The ones that were ACTIVE become
// RETIRING, unless the new one begins later than now: then they sign until it does.
// With the first rotation of a use, every key that a process has becomes RETIRING:
// until then all of them signed and verified.
//
// ErrKeyMissing names who lacks the bytes, ErrKeyRevoked refuses a revoked key,
// ErrIDReused an operation that did something else.
func (r Rotation) Rotate(keys []Key, now time.Time) (Key, []Key, error) {
	present, known := find(keys, r.KID)
	if i := slices.IndexFunc(keys, func(k Key) bool { return k.RotatedBy == r.OperationID || k.RevokedBy == r.OperationID }); i >= 0 {
		if keys[i].KID == r.KID && keys[i].RotatedBy == r.OperationID && keys[i].RotatedWith == r.digest() {
			return keys[i], nil, nil
		}
		return Key{}, nil, numbered(ErrIDReused, "operation_id", r.OperationID)
	}
	if err := r.allowed(present, known, len(keys)); err != nil {
		return Key{}, nil, err
	}
	next := Key{Use: r.Use, KID: r.KID, State: KeyActive, NotBefore: r.NotBefore, RotatedBy: r.OperationID, RotatedWith: r.digest()}
	if next.NotBefore.IsZero() {
		next.NotBefore = now
	}
	changed := []Key{next}
	if !next.NotBefore.After(now) {
		for _, k := range keys {
			if k.State == KeyActive && k.KID != r.KID {
				k.State = KeyRetiring
				changed = append(changed, k)
			}
		}
	}
	if len(keys) == 0 {
		changed = append(changed, r.adopt(next, now)...)
	}
	return next, changed, nil
}

// adopt gives the keys that were used before any had a state: RETIRING, or, while
// the new one does not sign yet, the greatest of them ACTIVE as it was.
func (r Rotation) adopt(next Key, now time.Time) (out []Key) {
	others := slices.DeleteFunc(slices.Sorted(slices.Values(r.Held)), func(kid string) bool { return kid == r.KID })
	for i, kid := range others {
		k := Key{Use: r.Use, KID: kid, State: KeyRetiring}
		if i == len(others)-1 && next.NotBefore.After(now) {
			k.State, k.NotBefore = KeyActive, now
		}
		out = append(out, k)
	}
	return out
}

func (r Rotation) allowed(present Key, known bool, keys int) error {
	missing := slices.Concat(r.Missing, r.Silent)
	switch {
	case known && present.State == KeyRevoked:
		return numbered(ErrKeyRevoked, "use", r.Use, "kid", r.KID)
	case !known && keys >= MaxKeys:
		return numbered(ErrKeyLimit, "use", r.Use, "keys", keys, "limit", MaxKeys)
	case r.Holders == 0:
		return numbered(ErrKeyMissing, "use", r.Use, "kid", r.KID, "missing_at", "no live edge or cell process has told of its keys")
	case len(missing) > 0:
		return numbered(ErrKeyMissing, "use", r.Use, "kid", r.KID, "missing", len(missing), "missing_at", strings.Join(missing[:min(len(missing), 20)], ", "))
	}
	return nil
}

// RevokeKey gives a key that verifies nothing any more; changed is false for a
// repeat. A key that nobody has heard of may be revoked too: its file may come.
// ErrKeyActive refuses the last one that signs.
func RevokeKey(keys []Key, use, kid, operationID string, now time.Time) (key Key, changed bool, err error) {
	present, known := find(keys, kid)
	if slices.ContainsFunc(keys, func(k Key) bool {
		return k.RotatedBy == operationID || k.RevokedBy == operationID && k.KID != kid
	}) {
		return Key{}, false, numbered(ErrIDReused, "operation_id", operationID)
	}
	switch {
	case known && present.State == KeyRevoked:
		return present, false, nil
	case !known && len(keys) >= MaxKeys:
		return Key{}, false, numbered(ErrKeyLimit, "use", use, "keys", len(keys), "limit", MaxKeys)
	}
	others := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.KID == kid })
	if _, signs := Signing(others, now); !signs {
		return Key{}, false, numbered(ErrKeyActive, "use", use, "kid", kid)
	}
	present.Use, present.KID, present.State, present.RevokedBy = use, kid, KeyRevoked, operationID
	return present, true, nil
}

// Signing gives the key that signs now: the newest ACTIVE one that has begun.
func Signing(keys []Key, now time.Time) (best Key, found bool) {
	for _, k := range keys {
		if k.State != KeyActive || k.NotBefore.After(now) {
			continue
		}
		if !found || cmp.Or(k.NotBefore.Compare(best.NotBefore), cmp.Compare(k.KID, best.KID)) > 0 {
			best, found = k, true
		}
	}
	return best, found
}

func find(keys []Key, kid string) (Key, bool) {
	for _, k := range keys {
		if k.KID == kid {
			return k, true
		}
	}
	return Key{}, false
}
