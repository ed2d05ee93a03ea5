package permit

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/internal/signed"
)

// Ring is the keys of one use, as far as the control plane allows them. It is safe for concurrent
// use; one goroutine calls Follow.
type Ring struct {
	use     signed.Use
	files   *signed.KeySet
	current atomic.Pointer[allowed]
}

// allowed is what a Ring may do now.
type allowed struct {
	keys    *signed.KeySet // to verify with
	signing string
}

// LoadRing reads the keys of one use from keysDir/use.
func LoadRing(keysDir string, use signed.Use) (*Ring, error) {
	files, err := signed.LoadKeys(keysDir, use)
	if err != nil {
		return nil, err
	}
	return NewRing(use, files)
}

// NewRing is a ring of keys that were loaded elsewhere. Until Follow is called all are allowed.
func NewRing(use signed.Use, files *signed.KeySet) (*Ring, error) {
	if len(files.Kids()) == 0 {
		return nil, fmt.Errorf("permit: no key of use %s", use)
	}
	r := &Ring{use: use, files: files}
	r.settle(nil)
	return r, nil
}

// Follow goes by the states of a snapshot. Where it names a key that is not held, the files are read
// again; an error of that is returned, and what is held stays in use.
func (r *Ring) Follow(s *routes.Snapshot) error {
	states := s.KeyStates(string(r.use))
	var err error
	for kid, state := range states {
		if state != routes.KeyRevoked && !r.files.Has(kid) {
			err = r.files.Reload()
			break
		}
	}
	r.settle(states)
	return err
}

func (r *Ring) settle(states map[string]string) {
	var kids []string
	for _, kid := range r.files.Kids() {
		if states[kid] != routes.KeyRevoked {
			kids = append(kids, kid)
		}
	}
	next := &allowed{keys: r.files.Only(kids...)}
	if len(kids) > 0 {
		next.signing = slices.Max(kids)
	}
	for _, kid := range kids {
		if states[kid] == routes.KeyActive {
			next.signing = kid
			break
		}
	}
	r.current.Store(next)
}

// Keys are the keys to verify with.
func (r *Ring) Keys() *signed.KeySet { return r.current.Load().keys }
