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

func (c *cli) undersellCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undersell CAMPAIGN", Short: "Show where every unit is that was not sold", Args: takes("CAMPAIGN"),
		Long: "Per SKU and cell: sale_limit = confirmed + the units of all causes, exactly.\n" +
			"UNALLOCATED is the reserve; LEFT_IN_CELL is available or unpaid; RELEASED_AFTER_END came back when the\n" +
			"sale was over; FROZEN is in a cell that may not sell or does not answer; WRITTEN_OFF may or may not have\n" +
			"been sold; UNDER_REVIEW waits for a person.",
		Example: "  cellctl undersell double-eleven\n  cellctl undersell double-eleven -o csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Reports.GetUndersell, &pb.GetUndersellRequest{CampaignId: args[0]})
				if err != nil {
					return fmt.Errorf("undersell of %s: %w", args[0], err)
				}
				return c.show(undersellView(out))
			})
		},
	}
}

func undersellView(out *pb.GetUndersellResponse) render.View {
	v := render.View{Message: out}
	t := render.Table{Columns: render.Columns("SKU", "#LIMIT", "#CONFIRMED", "CAUSE", "CELL", "#UNITS")}
	for _, sku := range out.GetSkus() {
		row := func(cause, cell string, units int32) {
			t.Rows = append(t.Rows, []string{sku.GetSkuId(), count(sku.GetSaleLimit()), count(sku.GetConfirmed()), cause, cell, count(units)})
		}
		for _, u := range sku.GetCells() {
			row(render.Word(u.GetCause()), u.GetCellId(), u.GetUnits())
		}
		if len(sku.GetCells()) == 0 {
			row("", "", 0)
		}
	}
	v.Tables = []render.Table{t}
	for _, cell := range slices.Sorted(maps.Keys(out.GetUnreachable())) {
		v.Lines = append(v.Lines, fmt.Sprintf("cell %s does not answer, its units are FROZEN here: %s", cell, out.GetUnreachable()[cell]))
	}
	return v
}

func (c *cli) campaignCancel() *cobra.Command {
	var m mutation
	var refundAll, noWait bool
	cmd := &cobra.Command{
		Use: "cancel CAMPAIGN --refund-all", Short: "End a campaign and give all money back", Args: takes("CAMPAIGN"),
		Long: "A second person must approve it (cellctl approval approve ID); nothing is stopped before. Then the sale\n" +
			"stops for good, unpaid orders are closed at once and every paid one is refunded. --dry-run counts them.",
		Example: "  cellctl campaign cancel double-eleven --refund-all --dry-run\n  cellctl campaign cancel double-eleven --refund-all --yes --reason 'recalled by the maker' --no-wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !refundAll {
				return usage("%s: needs --refund-all: every paid order of the campaign is refunded", cmd.CommandPath())
			}
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("Cancel %s? Its unpaid orders are closed and its paid ones refunded.", args[0])); err != nil {
					return err
				}
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.CancelCampaign, &pb.CancelCampaignRequest{
					CampaignId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd), RefundAll: true,
				})
				if err != nil {
					return fmt.Errorf("cancel %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return errors.Join(c.show(render.View{Message: out, Lines: []string{cancelledLine(args[0], out, m.dryRun)}}), err)
			})
		},
	}
	cmd.Flags().BoolVar(&refundAll, "refund-all", false, "every paid order is refunded; required")
	m.all(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func cancelledLine(campaign string, out *pb.CancelCampaignResponse, dry bool) string {
	op := out.GetOperation()
	switch {
	case dry:
		return fmt.Sprintf("would close %d unpaid orders and refund %d paid ones of %s", out.GetUnpaidOrders(), out.GetPaidOrders(), campaign)
	case op.GetState() == pb.OperationState_OPERATION_STATE_DONE:
		return campaign + " is cancelled: " + op.GetDetail()
	}
	return fmt.Sprintf("cancelling %s is %s: %s", campaign, render.Word(op.GetState()), op.GetDetail())
}
