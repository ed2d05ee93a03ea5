package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the whole platform on one page", Args: takes(),
		Example: "  cellctl status\n  cellctl status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Reports.GetStatus, &pb.GetStatusRequest{})
				if err != nil {
					return fmt.Errorf("status: %w", err)
				}
				return c.show(statusView(out))
			})
		},
	}
}

func statusView(s *pb.GetStatusResponse) render.View {
	v := render.View{Message: s}
	v.Lines = []string{
		fmt.Sprintf("leader        %s, term %d", or(s.GetLeader(), "none"), s.GetTerm().GetCount()),
		fmt.Sprintf("etcd          %s, view at revision %d, %s old", answer(s.GetEtcdOk()), s.GetRevision(), millis(s.GetViewAgeMs())),
		fmt.Sprintf("frozen units  %d", s.GetFrozenUnits()),
	}
	for _, edge := range slices.Sorted(maps.Keys(s.GetEdges())) {
		v.Lines = append(v.Lines, fmt.Sprintf("edge          %s, at revision %d", edge, s.GetEdges()[edge]))
	}
	for _, key := range s.GetQuarantined() {
		v.Lines = append(v.Lines, "unreadable    "+key)
	}
	v.Tables = []render.Table{cellTable(s.GetCells())}
	return v
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func answer(ok bool) string {
	if ok {
		return "answers"
	}
	return "does not answer"
}
