package signed

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// State is what the control plane says may be done with a key.
type State string

// The states. Any other word counts as Pending.
const (
	Pending  State = "PENDING"  // verifies
	Active   State = "ACTIVE"   // signs from its time on; verifies
	Retiring State = "RETIRING" // verifies
	Revoked  State = "REVOKED"  // nothing, for ever
)

// Status is one key's state.
type Status struct {
	KID       string
	State     State
	NotBefore time.Time // from when an ACTIVE key signs
}

// Ring is the keys of one use as a process may use them: the files that it has,
// under the states that it last heard. Safe for concurrent use.
//
//   - A file verifies from when it is here until its key is REVOKED: the rotation's
//     first signer must be believed by those who have not heard of it yet.
//   - The newest ACTIVE key that is held and has begun signs. Without one, because its
//     file is not here, it is the greatest key id held.
//   - While the use was never rotated, the key that was the greatest when the ring was
//     made signs on as long as it is held: a new file is copied from process to process,
//     and what the first one signed with it the last one would refuse.
//   - REVOKED is remembered in keys_dir/USE/.revoked, so that a restart without a
//     control plane does not bring the key back.
type Ring struct {
	files *KeySet

	mu     sync.Mutex // of what follows; readers go by current
	states []Status
	fault  string
	kept   string // signs while nothing was rotated; "": to be chosen

	current atomic.Pointer[allowed]
}

// allowed is what a Ring may do now; never changed in place.
type allowed struct {
	keys   *KeySet  // to verify with
	active []Status // held, ACTIVE, newest first
	other  string   // signs where none of active has begun; "": none is left
}

// LoadRing reads the keys of one use from keysDir/USE. Errors wrap ErrKeys.
func LoadRing(keysDir string, use Use) (*Ring, error) {
	files, err := LoadKeys(keysDir, use)
	if err != nil {
		return nil, err
	}
	r := &Ring{files: files}
	return r, r.remember()
}

// NewRing is a ring of keys that are held in memory; it remembers nothing.
func NewRing(files *KeySet) *Ring {
	r := &Ring{files: files}
	r.settle()
	return r
}

// Reload reads files and remembered revocations again. When it fails, what was held
// stays in use, and Fault says why until it succeeds.
func (r *Ring) Reload() error {
	err := r.files.Reload()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noted(cmp.Or(err, r.persist()))
}

// Follow goes by the states that the control plane sent: all of the use; none: it
// has said nothing of it. The files are read again where it names a key that is not
// held.
func (r *Ring) Follow(states []Status) error {
	var err error
	if slices.ContainsFunc(states, func(s Status) bool { return s.State != Revoked && !r.files.Has(s.KID) }) {
		err = r.files.Reload()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = union(states, r.states)
	return r.noted(cmp.Or(err, r.persist()))
}

// union is what was heard, with revocations that were heard before: they do not
// come back, even where etcd lost its past.
func union(heard, before []Status) []Status {
	out := slices.Clone(heard)
	for _, old := range before {
		if old.State != Revoked {
			continue
		}
		if i := slices.IndexFunc(out, func(s Status) bool { return s.KID == old.KID }); i >= 0 {
			out[i].State = Revoked
		} else {
			out = append(out, old)
		}
	}
	return out
}

func (r *Ring) noted(err error) error {
	r.settle()
	r.fault = ""
	if err != nil {
		r.fault = err.Error()
	}
	return err
}

func (r *Ring) settle() {
	var kids []string
	next := &allowed{}
	for _, kid := range r.files.Kids() {
		i := slices.IndexFunc(r.states, func(s Status) bool { return s.KID == kid })
		if i >= 0 && r.states[i].State == Revoked {
			continue
		}
		kids = append(kids, kid)
		if i >= 0 && r.states[i].State == Active {
			next.active = append(next.active, r.states[i])
		}
	}
	slices.SortFunc(next.active, func(a, b Status) int {
		return cmp.Or(b.NotBefore.Compare(a.NotBefore), cmp.Compare(b.KID, a.KID))
	})
	next.keys, next.other = r.files.Only(kids...), r.other(kids)
	r.current.Store(next)
}

// other is the key that signs where no ACTIVE one does, of those that may, sorted.
func (r *Ring) other(kids []string) string {
	if len(kids) == 0 {
		return ""
	}
	greatest := kids[len(kids)-1]
	if slices.ContainsFunc(r.states, func(s Status) bool { return s.State == Active || s.State == Retiring }) {
		r.kept = ""
		return greatest
	}
	if !slices.Contains(kids, r.kept) {
		r.kept = greatest
	}
	return r.kept
}

// Use is what the keys are for.
func (r *Ring) Use() Use { return r.files.use }

// Keys are the keys to verify with.
func (r *Ring) Keys() *KeySet { return r.current.Load().keys }

// Signer gives the keys and the id of the one that signs now; "" when none is left.
func (r *Ring) Signer(now time.Time) (*KeySet, string) {
	a := r.current.Load()
	for _, s := range a.active {
		if !s.NotBefore.After(now) {
			return a.keys, s.KID
		}
	}
	return a.keys, a.other
}

// Names are the keys whose bytes are held, "USE/KID", sorted.
func (r *Ring) Names() []string {
	kids := r.files.Kids()
	for i, kid := range kids {
		kids[i] = string(r.files.use) + "/" + kid
	}
	return kids
}

// Fault says what is wrong with the files, in words: one that cannot be read, an
// ACTIVE key that is not here, a revocation that cannot be remembered. "": nothing.
func (r *Ring) Fault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault != "" {
		return r.fault
	}
	for _, s := range r.states {
		if s.State == Active && !r.files.Has(s.KID) {
			return fmt.Sprintf("%s key %s is ACTIVE and its file is not here", r.files.use, s.KID)
		}
	}
	return ""
}
