package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) cellDrain() *cobra.Command {
	var m mutation
	var abort, noWait bool
	cmd := &cobra.Command{
		Use: "drain CELL", Short: "Let a cell sell nothing new and give back what it has", Args: takes("CELL"),
		Long: "The cell is DRAINING: it is granted nothing, admits nobody new, and gives its available units back to\n" +
			"the reserve. Unpaid orders can be paid until they settle; what is released goes back too. The users of\n" +
			"its buckets are told HOME_CELL_UNAVAILABLE until the buckets are handed over (route handover). The\n" +
			"operation ends when nothing unsold and no bucket of a sale that is not over is left; the detail of\n" +
			"`op get` says what is in the way. Then the cell can be retired. --abort lets it sell again.",
		Example: "  cellctl cell drain cell-2 --dry-run\n" +
			"  cellctl cell drain cell-2 --reason 'its rack is moved' --timeout 20m\n" +
			"  cellctl cell drain cell-2 --abort --reason 'the rack stays'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.RegionOperator, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.DrainCell, &pb.DrainCellRequest{
					CellId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd), Abort: abort,
				})
				if err != nil {
					return fmt.Errorf("drain %s: %w", args[0], err)
				}
				if abort {
					return c.show(cellView(out, out.GetCell()))
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				for _, b := range out.GetBlockers() {
					fmt.Fprintln(c.Err, "in the way: "+b)
				}
				return c.showMoved(out, out.GetOperation(), "GIVEN BACK", out.GetReturned(), err)
			})
		},
	}
	cmd.Flags().BoolVar(&abort, "abort", false, "end the drain: the cell sells again what it is granted from now on")
	m.all(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func (c *cli) cellRetire() *cobra.Command {
	var m mutation
	var noWait bool
	cmd := &cobra.Command{
		Use: "retire CELL", Short: "Take an empty cell out for good", Args: takes("CELL"),
		Long: "For a cell that was drained, or fenced and reclaimed, and holds no units, no bucket and no open order of\n" +
			"a campaign that is not settled. The fence row of its shard is ended, with proof; its processes can be\n" +
			"stopped then. It cannot be undone: the id is never used again. A cell whose shard is gone is written\n" +
			"off instead (cell reclaim --write-off).",
		Example: "  cellctl cell retire cell-2 --dry-run\n  cellctl cell retire cell-2 --reason 'its rack is gone'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("Retire %s? Its id is never used again.", args[0])); err != nil {
					return err
				}
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.RegionOperator, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.RetireCell, &pb.RetireCellRequest{
					CellId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("retire %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return c.showMoved(out, out.GetOperation(), "", nil, err)
			})
		},
	}
	m.all(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func (c *cli) cellRebuildMirror() *cobra.Command {
	var m mutation
	var in pb.RebuildMirrorRequest
	var noWait bool
	cmd := &cobra.Command{
		Use: "rebuild-mirror CELL --campaign C", Short: "Have a cell make a campaign's mirrors anew from its shard", Args: takes("CELL"),
		Long: "For a mirror that is thought to be wrong; one that is lost is made anew by itself. The campaign is paused\n" +
			"in this cell for about a second. What was admitted there and does not reach the log in that time ends\n" +
			"REJECTED, LOST_ADMISSION; nothing that is ordered is touched.",
		Example: "  cellctl cell rebuild-mirror cell-2 --campaign night --reason 'its counter looks wrong'\n" +
			"  cellctl cell rebuild-mirror cell-2 --campaign night --sku phone-x --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.RegionOperator, func(ctx context.Context, cp *client.Client) error {
				in.CellId, in.OperationId, in.ValidateOnly, in.ExpectedVersion, in.Reason = args[0], m.operationID, m.dryRun, m.version, m.why(cmd)
				out, err := call(ctx, c, cp.Cells.RebuildMirror, &in)
				if err != nil {
					return fmt.Errorf("rebuild the mirrors of %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return c.showMoved(out, out.GetOperation(), "", nil, err)
			})
		},
	}
	cmd.Flags().StringVar(&in.CampaignId, "campaign", "", "the campaign")
	required(cmd, "campaign")
	cmd.Flags().StringVar(&in.SkuId, "sku", "", "only the mirror of this SKU (default: all of the campaign's)")
	m.all(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}
