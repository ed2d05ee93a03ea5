package api

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/view"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// gatesAtOnce bounds the cells whose processes are asked for their gates at once.
const gatesAtOnce = 8

// gates asks the processes of every cell that has some; whoever does not answer is
// named and holds nobody up.
func (h *Reports) gates(ctx context.Context, s view.Snapshot) []*pb.CellGates {
	var out []*pb.CellGates
	for _, c := range s.Cells() {
		if len(s.Instances(c.Spec.ID)) > 0 {
			out = append(out, &pb.CellGates{CellId: string(c.Spec.ID)})
		}
	}
	var asked errgroup.Group
	asked.SetLimit(gatesAtOnce)
	for _, at := range out {
		asked.Go(func() error {
			got, err := h.cells.GetGate(ctx, &pb.CellAdminServiceGetGateRequest{CellId: at.CellId})
			if err != nil { // it is gone since
				at.Unreachable = map[string]string{at.CellId: err.Error()}
				return nil //nolint:nilerr // said in the answer
			}
			at.Processes, at.Unreachable = got.GetProcesses(), got.GetUnreachable()
			return nil
		})
	}
	_ = asked.Wait()
	return out
}
