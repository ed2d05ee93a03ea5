package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// CellKeys tells which keys the processes of cells have; link.Hub knows.
type CellKeys interface {
	// Keys gives the keys of each process of the cell that told of them under this
	// leader, by instance; none on a replica that does not lead.
	Keys(cell ids.CellID) map[string][]string
}

// holders are the live edges and cell processes with the keys that they have. Who
// counts: every process of a cell that holds a lease, and every edge that has a stream
// to a replica or had one within routes.edge_memory. An edge without a stream serves on
// with the last states it heard and may sign and verify; it is counted with the keys
// that it told last, so a rotation goes on where those hold the new one, and else waits
// for it to come back, or for the memory to end. The memory is the replica's: one that
// began a moment ago does not know who was connected to it before.
type holders struct {
	all    []*pb.KeyHolder
	silent []string // live, and nobody knows what they have
}

// maxMissing bounds the names of one answer.
const maxMissing = 100

// holders asks everybody who knows: edges are connected to any replica, cells to the
// leader. A process with a lease that has not told of its keys is silent, and so is
// a replica that does not answer.
func (h *Access) holders(ctx context.Context) holders {
	out := holders{all: h.mine()}
	if asReplica(ctx) {
		return out
	}
	if h.Peers != nil {
		out.others(ctx, h.Peers)
	}
	s := h.View.Snapshot()
	for _, c := range s.Cells() {
		for _, in := range s.Instances(c.Spec.ID) {
			name := cellHolder + string(c.Spec.ID) + "/" + in.ID
			if !slices.ContainsFunc(out.all, func(k *pb.KeyHolder) bool { return k.GetName() == name }) {
				out.silent = append(out.silent, name+" has not told of its keys")
			}
		}
	}
	slices.SortFunc(out.all, func(a, b *pb.KeyHolder) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// mine are the processes that are connected to this replica.
func (h *Access) mine() (out []*pb.KeyHolder) {
	if h.Routes != nil {
		out = append(out, h.Routes.Holders()...)
	}
	if h.Cells == nil {
		return out
	}
	for _, c := range h.View.Snapshot().Cells() {
		for instance, keys := range h.Cells.Keys(c.Spec.ID) {
			out = append(out, &pb.KeyHolder{Name: cellHolder + string(c.Spec.ID) + "/" + instance, Keys: keys})
		}
	}
	return out
}

// others adds what the other replicas know, asked side by side.
func (k *holders) others(ctx context.Context, peers Peers) {
	replicas := peers.Others()
	answers, faults := make([][]*pb.KeyHolder, len(replicas)), make([]error, len(replicas))
	var all sync.WaitGroup
	for i, r := range replicas {
		all.Go(func() { answers[i], faults[i] = keysAt(ctx, peers, r) })
	}
	all.Wait()
	for i, r := range replicas {
		if faults[i] != nil {
			k.silent = append(k.silent, fmt.Sprintf("replica %s does not say who follows it", r.Address))
		}
		for _, other := range answers[i] {
			k.add(other)
		}
	}
}

func keysAt(ctx context.Context, peers Peers, r core.Replica) ([]*pb.KeyHolder, error) {
	conn, err := peers.Conn(r.Address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, replicaTime)
	defer cancel()
	got, err := pb.NewAccessServiceClient(conn).ListKeys(ctx, &pb.ListKeysRequest{})
	return got.GetHolders(), err
}

// add takes a holder in. One that two replicas have a stream of has what both say: the
// older stream may not have ended yet. Who has one knows better than who remembers one,
// and of two who remember, who saw the edge last.
func (k *holders) add(other *pb.KeyHolder) {
	for i, known := range k.all {
		if known.GetName() != other.GetName() {
			continue
		}
		switch {
		case other.GetAwayMs() < known.GetAwayMs():
			k.all[i] = other
		case other.GetAwayMs() == known.GetAwayMs():
			known.Keys = slices.DeleteFunc(slices.Clone(known.GetKeys()), func(name string) bool { return !slices.Contains(other.GetKeys(), name) })
		}
		return
	}
	k.all = append(k.all, other)
}

// missing names who lacks a key and must have it: edges all, cells those of permits
// and receipts, and of payments where they sign questions to the channel.
func (k holders) missing(key core.Key) (out []string) {
	for _, x := range k.all {
		cell := strings.HasPrefix(x.GetName(), cellHolder)
		if cell && key.Use == "payment" && len(kidsOf(x, key.Use)) == 0 {
			continue
		}
		if !slices.Contains(x.GetKeys(), key.Name()) && len(out) < maxMissing {
			name := x.GetName()
			if away := time.Duration(x.GetAwayMs()) * time.Millisecond; away > 0 {
				name += fmt.Sprintf(" (not connected for %s)", away.Round(time.Second))
			}
			out = append(out, name)
		}
	}
	return out
}

// kids are the key ids of a use that somebody has, sorted; as many as a use may have.
func (k holders) kids(use string) []string {
	var out []string
	for _, x := range k.all {
		out = append(out, kidsOf(x, use)...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), core.MaxKeys)]
}

func kidsOf(x *pb.KeyHolder, use string) (out []string) {
	for _, name := range x.GetKeys() {
		if kid, of := strings.CutPrefix(name, use+"/"); of && len(core.CheckKeyName(use, kid)) == 0 {
			out = append(out, kid)
		}
	}
	return out
}
