package link

import (
	"testing"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestAnEmptyShardIsTold: a shard without a fence row is no reason to keep silent: only so is it known
// that it was begun anew.
func TestAnEmptyShardIsTold(t *testing.T) {
	p := newProcess(t)
	p.exec(`DELETE FROM cellquota.fence`)
	l := p.replica("a")
	p.start()
	h := l.next(t).hello
	if h.GetFenceVersion() != 0 || h.GetFenceInstanceGroup() != "" || h.GetWitness().GetIdentity() == "" || h.GetReporter() {
		t.Errorf("hello %v", h)
	}
}

// TestTheReporterTellsHowFarTheShardCame: as read after a commit.
func TestTheReporterTellsHowFarTheShardCame(t *testing.T) {
	p := newProcess(t)
	_, s := p.registered()
	_, err := p.shard.InstallRules(p.ctx, 1, "term-1", rules(1))
	p.must(err)
	for {
		w := expect(s, (*pb.LinkRequest).GetReport).GetWitness()
		if w == nil || len(w.GetStocks()) == 0 {
			continue
		}
		if w.GetFenceVersion() != 1 || w.GetStocks()[0].GetSkuId() != string(phone) {
			t.Errorf("witness %v", w)
		}
		return
	}
}

// TestAMirrorThatSawMoreIsHeard: without a control plane it is the only one who can tell.
func TestAMirrorThatSawMoreIsHeard(t *testing.T) {
	p := newProcess(t)
	p.shard.SetWriter(writer(1))
	_, err := p.shard.InstallRules(p.ctx, 1, "term-1", rules(1))
	p.must(err)
	seen, err := p.shard.Observe(p.ctx)
	p.must(err)
	facts := admission.Facts{Present: true, Build: ids.Build{Fence: 1, Count: 1}, BaseVersion: 3}
	if lacks := mirrored(campaign, phone, facts).Lacks(seen.Witness); lacks == "" {
		t.Error("a mirror that began at stock version 3 was not heard")
	}
	facts.BaseVersion = 0
	if lacks := mirrored(campaign, phone, facts).Lacks(seen.Witness); lacks != "" {
		t.Error(lacks)
	}
}
