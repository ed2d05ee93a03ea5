package link_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (r *replica) putKey(kid string, state core.KeyState) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "put key", func(tx *store.Tx) error {
		return tx.PutKey(core.Key{Use: "permit", KID: kid, State: state, NotBefore: time.Unix(1000, 0)})
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// states reads on to the states of keys.
func (p *process) states() []*pb.KeyInfo {
	p.t.Helper()
	for {
		if m := p.recv(); m.GetKeyStates() != nil {
			return m.GetKeyStates().GetKeys()
		}
	}
}

// Processes tell of their keys with keep-alives, and are told the states when they
// change and when they come.
func TestKeys(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	p := r.join(hello("cell-1", "p1"))
	if got := r.hub.Keys("cell-1"); len(got) != 0 {
		t.Errorf("before its first keep-alive it has %v", got)
	}
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: 1, Keys: []string{"permit/k1", "permit/k2"}}}})
	for p.recv().GetKeepAliveAck().GetSequence() != 1 {
	}
	if got := r.hub.Keys("cell-1")["p1"]; !slices.Equal(got, []string{"permit/k1", "permit/k2"}) {
		t.Errorf("told of %v", got)
	}
	r.putKey("k1", core.KeyActive)
	if got := p.states(); len(got) != 1 || got[0].GetState() != "ACTIVE" || got[0].GetNotBeforeMs() != 1_000_000 {
		t.Errorf("told %v", got)
	}
	r.putKey("k1", core.KeyRevoked)
	if got := p.states(); len(got) != 1 || got[0].GetState() != "REVOKED" {
		t.Errorf("told %v", got)
	}
	if got := r.join(hello("cell-1", "p2")).states(); len(got) != 1 || got[0].GetState() != "REVOKED" {
		t.Errorf("a newcomer was told %v", got)
	}
}
