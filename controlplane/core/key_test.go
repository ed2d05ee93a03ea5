package core

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"
)

func stateOf(keys []Key, kid string) KeyState { k, _ := find(keys, kid); return k.State }

// put is what a transaction does with the records that change.
func put(keys, changed []Key) []Key {
	for _, c := range changed {
		keys = append(slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.KID == c.KID }), c)
	}
	return keys
}

func rotation(kid string) Rotation {
	return Rotation{Use: "permit", KID: kid, OperationID: "op-" + kid, Holders: 2, Held: []string{"k1", "k2", "k3"}}
}

// TestRotate: the life of a use's keys from before the first rotation.
func TestRotate(t *testing.T) {
	now := time.Unix(1000, 0)
	key, changed, err := rotation("k2").Rotate(nil, now)
	keys := put(nil, changed)
	if err != nil || key.State != KeyActive || stateOf(keys, "k1") != KeyRetiring || stateOf(keys, "k3") != KeyRetiring || len(keys) != 3 {
		t.Fatalf("the first rotation of a use: %v, %+v", err, keys)
	}
	if again, changed, err := rotation("k2").Rotate(keys, now.Add(time.Hour)); err != nil || len(changed) != 0 || again.NotBefore != now {
		t.Errorf("a repeat: %+v, %v, %v", again, changed, err)
	}
	other := rotation("k3")
	other.OperationID = "op-k2"
	if _, _, err := other.Rotate(keys, now); !errors.Is(err, ErrIDReused) {
		t.Errorf("the same operation for another key: %v", err)
	}
	// One that begins later leaves the other signing until then.
	later := rotation("k3")
	later.NotBefore = now.Add(time.Minute)
	if _, changed, err = later.Rotate(keys, now); err != nil {
		t.Fatal(err)
	}
	keys = put(keys, changed)
	for _, row := range []struct {
		at   time.Time
		want string
	}{{now, "k2"}, {later.NotBefore, "k3"}} {
		if k, ok := Signing(keys, row.at); !ok || k.KID != row.want {
			t.Errorf("at %s %s signs, want %s", row.at, k.KID, row.want)
		}
	}
	// The one that signs is not revoked while the next has not begun.
	if _, _, err := RevokeKey(keys, "permit", "k2", "r1", now); !errors.Is(err, ErrKeyActive) {
		t.Errorf("the key that signs was revoked: %v", err)
	}
	gone, changedIt, err := RevokeKey(keys, "permit", "k2", "r1", later.NotBefore)
	if err != nil || !changedIt || gone.State != KeyRevoked {
		t.Fatalf("revoke: %+v, %v", gone, err)
	}
	keys = put(keys, []Key{gone})
	if _, again, err := RevokeKey(keys, "permit", "k2", "r1", later.NotBefore); err != nil || again {
		t.Errorf("a repeat of the revocation: %v, %v", again, err)
	}
	back := rotation("k2")
	back.OperationID = "op-back"
	if _, _, err := back.Rotate(keys, now); !errors.Is(err, ErrKeyRevoked) {
		t.Errorf("a revoked key came back: %v", err)
	}
	for _, k := range keys {
		if err := k.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestRotateRefuses: who lacks the key, or cannot be asked, is named.
func TestRotateRefuses(t *testing.T) {
	now := time.Unix(1000, 0)
	full := make([]Key, MaxKeys)
	for i := range full {
		full[i] = Key{Use: "permit", KID: "f" + strconv.Itoa(i), State: KeyRetiring}
	}
	for _, row := range []struct {
		name string
		edit func(*Rotation)
		keys []Key
		want error
	}{
		{"somebody lacks it", func(r *Rotation) { r.Missing = []string{"edge/e1"} }, nil, ErrKeyMissing},
		{"somebody is silent", func(r *Rotation) { r.Silent = []string{"replica x"} }, nil, ErrKeyMissing},
		{"nobody lives", func(r *Rotation) { r.Holders = 0 }, nil, ErrKeyMissing},
		{"too many", func(*Rotation) {}, full, ErrKeyLimit},
	} {
		r := rotation("k9")
		row.edit(&r)
		if _, _, err := r.Rotate(row.keys, now); !errors.Is(err, row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	// Without any ACTIVE one nothing is revoked: nobody could sign for sure.
	if _, _, err := RevokeKey(nil, "permit", "k1", "r", now); !errors.Is(err, ErrKeyActive) {
		t.Errorf("revoked before the first rotation: %v", err)
	}
}
