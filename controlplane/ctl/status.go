package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the whole platform on one page", Args: takes(),
		Long: "Leader, etcd, cells, gates and frozen units. The gates are asked of the cells' processes; in JSON and\n" +
			"YAML they are in gates[]. Findings are counted; 'cellctl reconcile list' names them.",
		Example: "  cellctl status\n  cellctl status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				people := c.format == render.FormatTable || c.format == render.FormatWide
				scripts := c.format == render.FormatJSON || c.format == render.FormatYAML
				out, err := call(ctx, c, cp.Reports.GetStatus, &pb.GetStatusRequest{Gates: scripts})
				if err != nil {
					return fmt.Errorf("status: %w", err)
				}
				var gates []cellGates
				if people {
					gates = askGates(ctx, cp, out.GetCells())
				}
				view := statusView(out, gates, c.Clock.Now())
				if people {
					view.Lines = slices.Insert(view.Lines, 4, "findings      "+findingWords(call(ctx, c, cp.Reconcile.ListFindings, &pb.ListFindingsRequest{})))
				}
				return c.show(view)
			})
		},
	}
}

func statusView(s *pb.GetStatusResponse, gates []cellGates, now time.Time) render.View {
	v := render.View{Message: s}
	v.Lines = []string{
		fmt.Sprintf("leader        %s, term %d", or(s.GetLeader(), "none"), s.GetTerm().GetCount()),
		fmt.Sprintf("etcd          %s, view at revision %d, %s old", etcdWords(s), s.GetRevision(), millis(s.GetViewAgeMs())),
		fmt.Sprintf("frozen units  %d", s.GetFrozenUnits()),
		fmt.Sprintf("operations    %d open, %d wait for approval", s.GetOpenOperations(), s.GetPendingApprovals()),
	}
	for _, r := range s.GetReplicas() {
		v.Lines = append(v.Lines, "replica       "+replicaWords(r))
	}
	for _, edge := range slices.Sorted(maps.Keys(s.GetEdges())) {
		v.Lines = append(v.Lines, fmt.Sprintf("edge          %s, at revision %d", edge, s.GetEdges()[edge]))
	}
	if why := s.GetRestored(); why != "" {
		v.Lines = append(v.Lines, "RESTORED      "+why)
	}
	if cells := s.GetUncomparedCells(); len(cells) > 0 {
		v.Lines = append(v.Lines, "grants wait   for "+strings.Join(cells, ", ")+": neither a process nor the shard has answered this leader")
	}
	v.Lines = append(v.Lines, certificateWords(s.GetCertificates(), now)...)
	for _, key := range s.GetQuarantined() {
		v.Lines = append(v.Lines, "unreadable    "+key)
	}
	cells := cellTable(s.GetCells())
	v.Tables = []render.Table{cells}
	table, silent := gateTable(gates)
	v.Lines = append(v.Lines, silent...)
	if len(table.Rows) > 0 {
		cells.Title = "CELLS"
		v.Tables = []render.Table{table, cells}
	}
	return v
}

// certificateWords tells of the certificates of the replica that was asked, of which one that ends
// within 14 days is a warning.
func certificateWords(certificates []*pb.CertificateStatus, now time.Time) (lines []string) {
	for _, c := range certificates {
		end := c.GetNotAfter().AsTime()
		name := c.GetKey() + " " + c.GetName()
		line := fmt.Sprintf("certificate   %s, until %s", name, render.Instant(c.GetNotAfter()))
		switch left := end.Sub(now); {
		case left <= 0:
			line = "WARNING       " + name + ": the certificate has ENDED at " + render.Instant(c.GetNotAfter())
		case left < 14*24*time.Hour:
			line = fmt.Sprintf("WARNING       %s: the certificate ends in %d days, at %s; replace its files", name, int(left.Hours()/24), render.Instant(c.GetNotAfter()))
		}
		lines = append(lines, line)
	}
	return lines
}

// replicaWords is one replica in a line.
func replicaWords(r *pb.ReplicaStatus) string {
	role := "follows"
	if r.GetLeader() {
		role = "leads"
	}
	if !r.GetAnswers() {
		return fmt.Sprintf("%s, %s, %s", r.GetAddress(), role, r.GetDetail())
	}
	return fmt.Sprintf("%s, %s, at revision %d, %s old", r.GetAddress(), role, r.GetRevision(), millis(r.GetViewAgeMs()))
}

// etcdWords say whether etcd answers and has room.
func etcdWords(s *pb.GetStatusResponse) string {
	words := answer(s.GetEtcdOk())
	if n := s.GetEtcdSizeBytes(); n > 0 {
		words += fmt.Sprintf(" with %d KiB", n>>10)
	}
	if s.GetEtcdNospace() {
		words += ", raised NOSPACE: it refuses every write until there is room and the alarm is disarmed"
	}
	return words
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
