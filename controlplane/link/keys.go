package link

import (
	"slices"
	"sync"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Keys implements api.CellKeys.
func (h *Hub) Keys(cell ids.CellID) map[string][]string {
	out := map[string][]string{}
	for _, p := range h.Processes(cell) {
		if p.Heard {
			out[p.ID] = p.Keys
		}
	}
	return out
}

// toldKeys is what a stream was told of signing keys. A lock of its own: two
// goroutines may tell, and the older view must not come last.
type toldKeys struct {
	mu       sync.Mutex
	revision int64
	keys     []core.Key
}

// tellKeys sends the states of the signing keys where they are other than what this
// process was told. Without any there is nothing to say: it goes by its files, or by
// what it heard from a leader before.
func (s *stream) tellKeys(v view.Snapshot) {
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	keys := v.Keys()
	if v.Revision() < s.told.revision || len(keys) == 0 || slices.Equal(keys, s.told.keys) {
		return
	}
	m := &pb.KeyStates{}
	for _, k := range keys {
		m.Keys = append(m.Keys, convert.Key(k))
	}
	if s.queue(&pb.LinkResponse{Kind: &pb.LinkResponse_KeyStates{KeyStates: m}}) {
		s.told.revision, s.told.keys = v.Revision(), keys
	}
}
