package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// cellKeys is the fake of the hub: what each process named in its keep-alives.
type cellKeys map[ids.CellID]map[string][]string

func (k cellKeys) Keys(cell ids.CellID) map[string][]string { return k[cell] }

// edge connects an edge with these keys; what it gets of key states comes out.
func (r *rig) edge(id string, keys ...string) (tell func(keys ...string), states <-chan []*pb.KeyInfo) {
	r.t.Helper()
	return r.edgeUntil(testkit.Deadline(r.t), id, keys...)
}

func (r *rig) edgeUntil(ctx context.Context, id string, keys ...string) (tell func(keys ...string), states <-chan []*pb.KeyInfo) {
	r.t.Helper()
	stream, err := r.as("edge/" + id).Routing.WatchRoutes(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	got := make(chan []*pb.KeyInfo, 64)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if len(m.GetKeys()) > 0 {
				got <- m.GetKeys()
			}
		}
	}()
	tell = func(keys ...string) {
		if err := stream.Send(&pb.WatchRoutesRequest{EdgeId: id, Keys: keys}); err != nil {
			r.t.Error(err)
		}
	}
	tell(keys...)
	return tell, got
}

// has waits until the replica knows what an edge has.
func (r *rig) has(edge string, keys ...string) {
	r.t.Helper()
	testkit.Eventually(r.t, 10*time.Second, func() error {
		if got := r.routes.Keys()[edge]; !slices.Equal(got, keys) {
			return fmt.Errorf("%s has %v, want %v", edge, got, keys)
		}
		return nil
	})
}

// A key becomes ACTIVE when every live process has it, and only then; the one before
// retires with it; who lacks it is named; a repeat finds its record; edges are told.
func TestRotateKey(t *testing.T) {
	r := newRig(t)
	r.provision(1)
	ctx := testkit.Deadline(t)
	sre := r.as(access.SRE)
	rotate := func(kid, op string, dry bool) (*pb.SigningKey, error) {
		out, err := sre.Access.RotateKey(ctx, &pb.RotateKeyRequest{Use: "permit", Kid: kid, OperationId: op, ValidateOnly: dry, Reason: "monthly"})
		return out.GetKey(), err
	}
	if _, err := rotate("k1", "o0", false); !errors.Is(err, core.ErrKeyMissing) {
		t.Fatalf("nobody lives: %v", err)
	}
	tell, states := r.edge("e1", "permit/k1", "payment/p1")
	r.has("e1", "permit/k1", "payment/p1")
	r.cellKeys["cell-1"] = map[string][]string{"alive": {"permit/k1", "permit/k2", "receipt/r1"}}
	r.alive()
	list, err := sre.Access.ListKeys(ctx, &pb.ListKeysRequest{})
	if err != nil || len(list.GetKeys()) != 4 || list.GetKeys()[0].GetInfo().GetState() != "UNMANAGED" {
		t.Fatalf("before the first rotation: %v, %v", list, err)
	}
	if _, err := rotate("k2", "o1", false); !errors.Is(err, core.ErrKeyMissing) || rpcstatus.Metadata(err)["missing_at"] != "edge/e1" {
		t.Fatalf("an edge lacks it: %v, %v", err, rpcstatus.Metadata(err))
	}
	tell("permit/k1", "permit/k2", "payment/p1")
	r.has("e1", "permit/k1", "permit/k2", "payment/p1")
	if k, err := rotate("k2", "o1", true); err != nil || k.GetInfo().GetState() != "ACTIVE" || len(r.view.Snapshot().Keys()) != 0 {
		t.Fatalf("a dry run: %v, %v", k, err)
	}
	if _, err := rotate("k2", "o1", false); err != nil {
		t.Fatal(err)
	}
	if k, err := rotate("k2", "o1", false); err != nil || k.GetInfo().GetState() != "ACTIVE" {
		t.Fatalf("a repeat: %v, %v", k, err)
	}
	if _, err := rotate("k1", "o1", false); !errors.Is(err, core.ErrIDReused) {
		t.Fatalf("the operation of another key: %v", err)
	}
	if told := <-states; len(told) != 2 || told[0].GetState() != "RETIRING" || told[1].GetState() != "ACTIVE" || told[1].GetNotBeforeMs() == 0 {
		t.Errorf("the edge was told %v", told)
	}
	revoke := func(kid string) error {
		_, err := sre.Access.RevokeKey(ctx, &pb.RevokeKeyRequest{Use: "permit", Kid: kid, OperationId: "revoke-" + kid, Reason: "lost"})
		return err
	}
	if err := revoke("k2"); !errors.Is(err, core.ErrKeyActive) {
		t.Errorf("the key that signs was revoked: %v", err)
	}
	if err := errors.Join(revoke("k1"), revoke("k1")); err != nil {
		t.Errorf("revoke, twice: %v", err)
	}
	if _, err := rotate("k1", "o9", false); !errors.Is(err, core.ErrKeyRevoked) {
		t.Errorf("a revoked key: %v", err)
	}
	// A process that holds a lease and says nothing stops a rotation.
	delete(r.cellKeys, "cell-1")
	if _, err := rotate("k3", "o3", false); !errors.Is(err, core.ErrKeyMissing) || !strings.Contains(rpcstatus.Metadata(err)["missing_at"], "cell/cell-1/alive has not told") {
		t.Errorf("a silent process: %v", err)
	}
}

// An edge that is alive but has no stream at this moment serves on, with what it knows: a rotation that forgot it
// would sign permits that it refuses. It counts until it is forgotten, with the keys that it told last.
func TestAnEdgeThatIsAwayCounts(t *testing.T) {
	r := newRig(t)
	ctx, sre := testkit.Deadline(t), r.as(access.SRE)
	rotate := func(kid string) error {
		_, err := sre.Access.RotateKey(ctx, &pb.RotateKeyRequest{Use: "permit", Kid: kid, OperationId: "rotate-" + kid})
		return err
	}
	_, _ = r.edge("e1", "permit/k1", "permit/k2", "permit/k3")
	r.has("e1", "permit/k1", "permit/k2", "permit/k3")
	gone := func(keys ...string) {
		t.Helper()
		stream, cut := context.WithCancel(ctx)
		_, _ = r.edgeUntil(stream, "e2", keys...)
		r.has("e2", keys...)
		cut()
		testkit.Eventually(t, 10*time.Second, func() error {
			if _, here := r.routes.Keys()["e2"]; here {
				return errors.New("e2 is connected still")
			}
			return nil
		})
	}
	gone("permit/k1")
	r.hands.ahead.Store(int64(20 * time.Second))
	if err := rotate("k2"); !errors.Is(err, core.ErrKeyMissing) || !strings.Contains(rpcstatus.Metadata(err)["missing_at"], "edge/e2 (not connected for 2") {
		t.Errorf("an edge that is away lacks it: %v, %v", err, rpcstatus.Metadata(err))
	}
	gone("permit/k1", "permit/k2") // it came, told that it has the file, and left
	if err := rotate("k2"); err != nil {
		t.Errorf("an edge that is away told that it has it: %v", err)
	}
	r.hands.ahead.Store(int64(2 * time.Minute))
	if err := rotate("k3"); err != nil {
		t.Errorf("an edge that nobody saw for longer than the memory: %v", err)
	}
}

// Cells that sign no questions to the channel need no payment key.
func TestPaymentKeysAreTheEdges(t *testing.T) {
	r := newRig(t)
	r.provision(1)
	r.alive()
	r.cellKeys["cell-1"] = map[string][]string{"alive": {"permit/k1"}}
	_, _ = r.edge("e1", "payment/p2")
	r.has("e1", "payment/p2")
	sre := r.as(access.SRE)
	if _, err := sre.Access.RotateKey(testkit.Deadline(t), &pb.RotateKeyRequest{Use: "payment", Kid: "p2", OperationId: "o"}); err != nil {
		t.Error(err)
	}
	r.cellKeys["cell-1"] = map[string][]string{"alive": {"payment/p1"}}
	if _, err := sre.Access.RotateKey(testkit.Deadline(t), &pb.RotateKeyRequest{Use: "payment", Kid: "p2", OperationId: "o2"}); !errors.Is(err, core.ErrKeyMissing) {
		t.Errorf("a cell that asks the channel lacks it: %v", err)
	}
	_, err := sre.Access.RotateKey(testkit.Deadline(t), &pb.RotateKeyRequest{Use: "cookie", Kid: "a b", OperationId: "o3"})
	if v := rpcstatus.Violations(err); len(v) != 2 || v[0].Field != "use" || v[1].Field != "kid" {
		t.Errorf("faults: %v", v)
	}
}
