package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) quotaReturn() *cobra.Command {
	var m mutation
	var noWait bool
	cmd := &cobra.Command{
		Use: "return CAMPAIGN SKU CELL N", Short: "Take N unsold units of a cell back to the reserve", Args: takes("CAMPAIGN", "SKU", "CELL", "N"),
		Long: "Asks the cell for N units. Its shard decides: it gives them up if it has that many available, and\n" +
			"refuses otherwise; then nothing is moved and the command exits 4. Units that are sold or reserved\n" +
			"are never returned. The book moves when the shard has answered.",
		Example: "  cellctl quota return double-eleven phone-x cell-1 200\n  cellctl quota return double-eleven phone-x cell-1 200 --no-wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := units(args[3])
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Quota.ReturnUnits, &pb.ReturnUnitsRequest{
					AdjustmentId: m.operationID, CampaignId: args[0], SkuId: args[1], CellId: args[2], Units: n,
					ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("return %d of %s/%s from %s: %w", n, args[0], args[1], args[2], err)
				}
				if !noWait && !m.dryRun {
					if out.Adjustment, err = c.applied(ctx, cp, out.GetAdjustment()); err == nil {
						err = taken(out.GetAdjustment())
					}
					out.Book = c.bookNow(ctx, cp, out.GetBook())
				}
				books := bookTable([]*pb.Book{out.GetBook()})
				books.Title = "BOOK"
				t := adjustmentTable([]*pb.Adjustment{out.GetAdjustment()})
				t.Title = "ADJUSTMENT"
				return errors.Join(c.show(render.View{Message: out, Tables: []render.Table{books, t}}), err)
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the intent is written, before the cell's shard has decided")
	return cmd
}

// taken is errEnded for a return that the shard refused.
func taken(a *pb.Adjustment) error {
	if a.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_REFUSED {
		return nil
	}
	return fmt.Errorf("%s: %w: %s has fewer than %d units available; 0 were returned, number %d is used",
		a.GetAdjustmentId(), errEnded, a.GetCellId(), a.GetUnits(), a.GetNumber())
}

// bookNow reads the book after the answer; the one before it when that fails.
func (c *cli) bookNow(ctx context.Context, cp *client.Client, before *pb.Book) *pb.Book {
	out, err := cp.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: before.GetCampaignId(), SkuId: before.GetSkuId()})
	if err != nil || len(out.GetBooks()) != 1 {
		return before
	}
	return out.GetBooks()[0]
}

func (c *cli) quotaTransfer() *cobra.Command {
	var m mutation
	var from, to string
	var noWait bool
	cmd := &cobra.Command{
		Use: "transfer CAMPAIGN SKU N --from CELL --to CELL", Short: "Move N unsold units from one cell to another", Args: takes("CAMPAIGN", "SKU", "N"),
		Long: "The giver's shard gives up N units or refuses; then the book moves; then the taker is granted them.\n" +
			"If the taker is fenced or gone meanwhile the units stay in the reserve and the operation says so.",
		Example: "  cellctl quota transfer double-eleven phone-x 200 --from cell-1 --to cell-2\n" +
			"  cellctl quota transfer double-eleven phone-x 200 --from cell-1 --to cell-2 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := units(args[2])
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Quota.TransferUnits, &pb.TransferUnitsRequest{
					AdjustmentId: m.operationID, CampaignId: args[0], SkuId: args[1], FromCellId: from, ToCellId: to, Units: n,
					ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("transfer %d of %s/%s from %s to %s: %w", n, args[0], args[1], from, to, err)
				}
				return c.showMove(ctx, cp, out, &out.Operation, &out.Book, noWait || m.dryRun)
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "cell that gives")
	cmd.Flags().StringVar(&to, "to", "", "cell that takes")
	required(cmd, "from")
	required(cmd, "to")
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func (c *cli) campaignSetLimit() *cobra.Command {
	var m mutation
	var noWait bool
	cmd := &cobra.Command{
		Use: "set-limit CAMPAIGN SKU N", Short: "Raise or lower a SKU's sale limit", Args: takes("CAMPAIGN", "SKU", "N"),
		Long: "A raise adds to the reserve, within the physical stock; not after FINAL_SOLD_OUT. A lowering takes the\n" +
			"reserve at once and then asks cells for what they have available; it ends at N, or at the floor of\n" +
			"what is sold and reserved, and says which. Setting a limit at or above the present one cancels a\n" +
			"lowering that is under way.",
		Example: "  cellctl campaign set-limit double-eleven phone-x 12000 --reason 'second delivery came'\n" +
			"  cellctl campaign set-limit double-eleven phone-x 8000 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := units(args[2])
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.SetSaleLimit, &pb.SetSaleLimitRequest{
					OperationId: m.operationID, CampaignId: args[0], SkuId: args[1], SaleLimit: n,
					ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("set the limit of %s/%s to %d: %w", args[0], args[1], n, err)
				}
				return c.showMove(ctx, cp, out, &out.Operation, &out.Book, noWait || m.dryRun)
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// showMove waits for the operation of an answer and shows it, with the book as it
// then is.
func (c *cli) showMove(ctx context.Context, cp *client.Client, m messageOf, op **pb.Operation, book **pb.Book, leave bool) error {
	err := c.follow(ctx, cp, op, leave)
	if !leave {
		*book = c.bookNow(ctx, cp, *book)
	}
	books := bookTable([]*pb.Book{*book})
	books.Title = "BOOK"
	v := render.View{Message: m, Tables: []render.Table{books}}
	if *op != nil {
		t := opTable(*op)
		t.Title = "OPERATION"
		v.Tables = append(v.Tables, t)
	}
	return errors.Join(c.show(v), err)
}
