package link

import (
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// refused is a Refusal on its way through a transaction.
type refused struct{ *pb.Refusal }

// Error is the refusal in words.
func (r refused) Error() string { return r.GetCode().String() + ": " + r.GetDetail() }

func refuse(code pb.RefusalCode, format string, args ...any) *pb.Refusal {
	return &pb.Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// judge says why a process may not register, or nil. Pure: the cell is its
// record in etcd, leader the term that it would be told.
//
// Lower than etcd says is not the same as higher: a shard behind its cell's fence
// version lost committed rows, or its row was read before the last restore; a
// shard ahead of etcd means that etcd lost its past.
func judge(h *pb.Hello, leader core.Term, cell core.Cell) *pb.Refusal {
	if r := judgeState(cell); r != nil {
		return r
	}
	if h.GetInstanceGroup() != cell.InstanceGroup {
		return refuse(pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP, "instance_group: cell %s is held by group %s; fence it, then restore it for group %s",
			cell.Spec.ID, cell.InstanceGroup, h.GetInstanceGroup())
	}
	if r := judgeShard(h, cell); r != nil {
		return r
	}
	known := core.Term{Count: h.GetTerm().GetCount(), ID: h.GetTerm().GetId()}
	if known.Count > leader.Count || known.Count == leader.Count && known.Count > 0 && known.ID != leader.ID {
		return refuse(pb.RefusalCode_REFUSAL_CODE_RESTORED, "the shard of cell %s knows term %d/%s, etcd gave out %d/%s: etcd lost its past; an operator must confirm the books",
			cell.Spec.ID, known.Count, known.ID, leader.Count, leader.ID)
	}
	return nil
}

// judgeUnknown says why a cell without a record may not register. One whose shard
// was told a term belongs to an etcd that had its record: this one lost it. A shard
// that no leader ever spoke to holds no unit.
func judgeUnknown(h *pb.Hello, cell ids.CellID) *pb.Refusal {
	if count := h.GetTerm().GetCount(); count > 0 {
		return refuse(pb.RefusalCode_REFUSAL_CODE_RESTORED, "the shard of cell %s knows term %d, and etcd does not know the cell: etcd lost its past, or the cell belongs to another control plane", cell, count)
	}
	return refuse(pb.RefusalCode_REFUSAL_CODE_UNKNOWN_CELL, "no cell %s; provision it", cell)
}

func judgeState(cell core.Cell) *pb.Refusal {
	switch {
	case cell.State.MayRegister():
		return nil
	case cell.State == core.CellProvisioned:
		return refuse(pb.RefusalCode_REFUSAL_CODE_UNKNOWN_CELL, "cell %s is being provisioned; register when that is done", cell.Spec.ID)
	case cell.State == core.CellRegressed:
		return refuse(pb.RefusalCode_REFUSAL_CODE_REGRESSED, "the shard of cell %s went back in time; recover it first", cell.Spec.ID)
	default:
		return refuse(pb.RefusalCode_REFUSAL_CODE_FENCED, "cell %s is %s at fence version %d; restore it first", cell.Spec.ID, cell.State, cell.FenceVersion)
	}
}

// judgeShard compares the shard's fence row with the cell's record.
func judgeShard(h *pb.Hello, cell core.Cell) *pb.Refusal {
	row := h.GetFenceVersion()
	switch {
	case row > cell.FenceVersion:
		return refuse(pb.RefusalCode_REFUSAL_CODE_RESTORED, "the shard of cell %s is at fence version %d, etcd says %d: etcd lost its past; an operator must confirm the books",
			cell.Spec.ID, row, cell.FenceVersion)
	case row < cell.FenceVersion && cell.State == core.CellRestoring:
		return refuse(pb.RefusalCode_REFUSAL_CODE_FENCED, "cell %s is being restored; its shard is at fence version %d and will be at %d; read the row again", cell.Spec.ID, row, cell.FenceVersion)
	case row < cell.FenceVersion:
		return refuse(pb.RefusalCode_REFUSAL_CODE_REGRESSED, "the shard of cell %s is at fence version %d, the control plane gave it %d: read the row again; if it stays, the shard went back in time",
			cell.Spec.ID, row, cell.FenceVersion)
	case h.GetFenceState() == pb.FenceState_FENCE_STATE_FENCED:
		return refuse(pb.RefusalCode_REFUSAL_CODE_FENCED, "the shard of cell %s is FENCED at version %d; restore it first", cell.Spec.ID, row)
	case h.GetFenceInstanceGroup() != cell.InstanceGroup:
		return refuse(pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP, "the shard of cell %s belongs to group %s, the cell to group %s", cell.Spec.ID, h.GetFenceInstanceGroup(), cell.InstanceGroup)
	}
	return nil
}
