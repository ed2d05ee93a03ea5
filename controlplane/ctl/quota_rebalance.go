package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) quotaRebalance() *cobra.Command {
	var m mutation
	var apply, noWait bool
	cmd := &cobra.Command{
		Use: "rebalance CAMPAIGN [SKU] [--apply]", Short: "Show or carry out moves of idle units to cells that lack some", Args: takes("CAMPAIGN", "[SKU]"),
		Long: "Shows the moves that the leader would make now, with their reasons, and who is left alone and why.\n" +
			"--apply carries out what it then shows: each giver's shard gives up the units or refuses; what a\n" +
			"refused move wanted stays where it is, and the operation names it. Without moves nothing is begun.",
		Example: "  cellctl quota rebalance double-eleven\n  cellctl quota rebalance double-eleven phone-x --apply\n" +
			"  cellctl quota rebalance double-eleven --apply --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &pb.PlanRebalanceRequest{CampaignId: args[0]}
			if len(args) == 2 {
				in.SkuId = args[1]
			}
			if !apply {
				return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
					plan, err := call(ctx, c, cp.Quota.PlanRebalance, in)
					if err != nil {
						return fmt.Errorf("plan a rebalance of %s: %w", args[0], err)
					}
					return c.show(planView(plan))
				})
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				return c.applyRebalance(ctx, cp, in, m, m.why(cmd), noWait)
			})
		},
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "carry the plan out")
	m.flags(cmd)
	m.reasonFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// applyRebalance asks for the leader's plan of this moment. The empty plan of the
// request is what a repeat under the same id asks for too: it answers what the first
// call began.
func (c *cli) applyRebalance(ctx context.Context, cp *client.Client, in *pb.PlanRebalanceRequest, m mutation, why string, noWait bool) error {
	out, err := call(ctx, c, cp.Quota.ApplyRebalance, &pb.ApplyRebalanceRequest{
		CampaignId: in.GetCampaignId(), SkuId: in.GetSkuId(), OperationId: m.operationID, ValidateOnly: m.dryRun, Reason: why,
	})
	if err != nil {
		return fmt.Errorf("rebalance %s: %w", in.GetCampaignId(), err)
	}
	err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
	moves := moveTable(out.GetMoves())
	moves.Title = "MOVES"
	v := render.View{Message: out, Tables: []render.Table{moves}}
	if out.GetOperation() != nil {
		t := opTable(out.GetOperation())
		t.Title = "OPERATION"
		v.Tables = append(v.Tables, t)
	}
	return errors.Join(c.show(v), err)
}

func planView(plan *pb.PlanRebalanceResponse) render.View {
	v := render.View{Message: plan, Tables: []render.Table{moveTable(plan.GetMoves())}}
	for _, s := range plan.GetSkipped() {
		v.Lines = append(v.Lines, "left alone: "+s)
	}
	for _, sku := range slices.Sorted(maps.Keys(plan.GetBookVersions())) {
		v.Lines = append(v.Lines, fmt.Sprintf("book of %s: version %d", sku, plan.GetBookVersions()[sku]))
	}
	return v
}

func moveTable(moves []*pb.RebalanceMove) render.Table {
	t := render.Table{Columns: render.Columns("SKU", "FROM", "TO", "#UNITS", "WHY")}
	for _, m := range moves {
		t.Rows = append(t.Rows, []string{m.GetSkuId(), orReserve(m.GetFromCellId()), orReserve(m.GetToCellId()), count(m.GetUnits()), m.GetWhy()})
	}
	return t
}

func orReserve(cell string) string {
	if cell == "" {
		return "reserve"
	}
	return cell
}
