package link

import (
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// K22, K31: who may register, cell state by cell state.
func TestK22OnlyACellThatMayWriteRegisters(t *testing.T) {
	want := map[core.CellState]pb.RefusalCode{
		core.CellProvisioned: pb.RefusalCode_REFUSAL_CODE_UNKNOWN_CELL, core.CellActive: 0, core.CellSuspect: 0, core.CellDraining: 0,
		core.CellFencing: pb.RefusalCode_REFUSAL_CODE_FENCED, core.CellFenced: pb.RefusalCode_REFUSAL_CODE_FENCED, core.CellRestoring: 0,
		core.CellRegressed: pb.RefusalCode_REFUSAL_CODE_REGRESSED, core.CellRetired: pb.RefusalCode_REFUSAL_CODE_FENCED,
	}
	for _, state := range core.CellStates() {
		code, ok := want[state]
		if !ok {
			t.Fatalf("no row for %s", state)
		}
		cell := core.Cell{State: state, FenceVersion: 2, InstanceGroup: "blue"}
		if got := judge(goodHello(), core.Term{Count: 3, ID: "x"}, cell).GetCode(); got != code {
			t.Errorf("%s: %s, want %s", state, got, code)
		}
	}
}

func goodHello() *pb.Hello {
	return &pb.Hello{
		CellId: "cell-1", InstanceId: "i", InstanceGroup: "blue", FenceVersion: 2, FenceState: pb.FenceState_FENCE_STATE_ACTIVE,
		FenceInstanceGroup: "blue", Term: &pb.Term{Count: 2, Id: "w"},
	}
}

func TestHelloIsComparedWithTheRecord(t *testing.T) {
	restored, regressed := pb.RefusalCode_REFUSAL_CODE_RESTORED, pb.RefusalCode_REFUSAL_CODE_REGRESSED
	fenced, other := pb.RefusalCode_REFUSAL_CODE_FENCED, pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP
	for _, c := range []struct {
		name  string
		state core.CellState
		edit  func(*pb.Hello)
		want  pb.RefusalCode
	}{
		{"as it should be", core.CellActive, func(*pb.Hello) {}, 0},
		{"the first term ever", core.CellActive, func(h *pb.Hello) { h.Term = nil }, 0},
		{"this very term", core.CellActive, func(h *pb.Hello) { h.Term = &pb.Term{Count: 3, Id: "x"} }, 0},
		{"settle-only while restoring", core.CellRestoring, func(h *pb.Hello) { h.FenceState = pb.FenceState_FENCE_STATE_SETTLE_ONLY }, 0},
		{"shard ahead of etcd", core.CellActive, func(h *pb.Hello) { h.FenceVersion = 3 }, restored},
		{"term ahead of etcd", core.CellActive, func(h *pb.Hello) { h.Term = &pb.Term{Count: 4, Id: "y"} }, restored},
		{"another leader of this count", core.CellActive, func(h *pb.Hello) { h.Term = &pb.Term{Count: 3, Id: "y"} }, restored},
		{"shard behind", core.CellActive, func(h *pb.Hello) { h.FenceVersion = 1 }, regressed},
		{"empty shard", core.CellActive, func(h *pb.Hello) { h.FenceVersion, h.FenceState = 0, 0 }, regressed},
		{"restore not in the shard yet", core.CellRestoring, func(h *pb.Hello) { h.FenceVersion = 1 }, fenced},
		{"fenced row", core.CellActive, func(h *pb.Hello) { h.FenceState = pb.FenceState_FENCE_STATE_FENCED }, fenced},
		{"other group", core.CellActive, func(h *pb.Hello) { h.InstanceGroup = "green" }, other},
		{"shard of another group", core.CellActive, func(h *pb.Hello) { h.FenceInstanceGroup = "green" }, other},
	} {
		h := goodHello()
		c.edit(h)
		cell := core.Cell{State: c.state, FenceVersion: 2, InstanceGroup: "blue"}
		if got := judge(h, core.Term{Count: 3, ID: "x"}, cell); got.GetCode() != c.want || got != nil && got.GetDetail() == "" {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}
