package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) cellFence() *cobra.Command {
	var m mutation
	var in pb.FenceCellRequest
	var noWait bool
	cmd := &cobra.Command{
		Use: "fence CELL", Short: "Take the right to write from a cell, with proof", Args: takes("CELL"),
		Long: "Installs a higher fence version in the cell's shard: from then on nothing of the old holder is\n" +
			"committed. --reclaim books the unsold units back to the reserve, --top-up then gives them to the\n" +
			"other cells. A healthy cell is fenced with --force only. While the shard does not answer, the\n" +
			"operation goes on; it ends by proof, never by time.",
		Example: "  cellctl cell fence cell-2 --dry-run\n" +
			"  cellctl cell fence cell-2 --reclaim --top-up --reason 'rack lost power'\n" +
			"  cellctl cell fence cell-2 --force --reason 'planned move'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in.CellId, in.ValidateOnly, in.ExpectedVersion, in.Reason = args[0], m.dryRun, m.version, m.why(cmd)
				in.Reclaim = in.GetReclaim() || in.GetTopUp()
				if err := c.confirmFence(ctx, cp, &in); err != nil {
					return err
				}
				if err := m.begin(c); err != nil {
					return err
				}
				in.OperationId = m.operationID
				out, err := call(ctx, c, cp.Fences.FenceCell, &in)
				if err != nil {
					return fmt.Errorf("fence %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return c.showMoved(out, out.GetOperation(), "SEALED", out.GetSealed(), err)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&in.Reclaim, "reclaim", false, "then book the sealed units back to the reserve")
	f.BoolVar(&in.TopUp, "top-up", false, "then give them to the other cells (with --reclaim)")
	f.BoolVar(&in.Force, "force", false, "although the cell is alive")
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// confirmFence shows a person what would be sealed before it asks.
func (c *cli) confirmFence(ctx context.Context, cp *client.Client, in *pb.FenceCellRequest) error {
	if c.yes || !c.Terminal || in.GetValidateOnly() {
		return nil
	}
	preview, err := call(ctx, c, cp.Fences.FenceCell, &pb.FenceCellRequest{
		CellId: in.GetCellId(), ValidateOnly: true, ExpectedVersion: in.GetExpectedVersion(), Force: in.GetForce(),
		Reason: in.GetReason(), Reclaim: in.GetReclaim(), TopUp: in.GetTopUp(),
	})
	if err != nil {
		return fmt.Errorf("fence %s: %w", in.GetCellId(), err)
	}
	var sum int64
	for _, s := range preview.GetSealed() {
		sum += int64(s.GetUnits())
	}
	return c.confirm(fmt.Sprintf("Fence %s? It stops selling; %d units of %d SKUs are sealed.", in.GetCellId(), sum, len(preview.GetSealed())))
}

func (c *cli) cellReclaim() *cobra.Command {
	var m mutation
	var in pb.ReclaimCellRequest
	var noWait bool
	cmd := &cobra.Command{
		Use: "reclaim CELL", Short: "Book a fenced cell's unsold units back to the reserve", Args: takes("CELL"),
		Long: "Books what the fence proved. --write-off is for a cell that stays FENCING because its shard is gone\n" +
			"for good: everything that it holds is written off, never given to anyone, and the cell is RETIRED.\n" +
			"A second person approves it first. It cannot be undone: a shard that may come back is waited for.",
		Example: "  cellctl cell reclaim cell-2 --dry-run\n  cellctl cell reclaim cell-2 --top-up --reason 'rack lost power'\n" +
			"  cellctl cell reclaim cell-2 --write-off --dry-run\n  cellctl cell reclaim cell-2 --write-off --reason 'rack burnt, no copy of its disks'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.GetWriteOff() && in.GetTopUp() {
				return usage("--top-up: what is written off is never given to anyone")
			}
			if in.GetWriteOff() && !m.dryRun && m.reason == "" {
				return usage("--reason: a write-off needs one; a second person has to judge it")
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in.CellId, in.ValidateOnly, in.Reason = args[0], m.dryRun, m.why(cmd)
				if err := c.confirmWriteOff(ctx, cp, &in); err != nil {
					return err
				}
				if err := m.begin(c); err != nil {
					return err
				}
				in.OperationId = m.operationID
				out, err := call(ctx, c, cp.Fences.ReclaimCell, &in)
				if err != nil {
					return fmt.Errorf("reclaim %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				if in.GetWriteOff() {
					return c.showMoved(out, out.GetOperation(), "WRITTEN OFF", out.GetWrittenOff(), err)
				}
				return c.showMoved(out, out.GetOperation(), "RECLAIMED", out.GetReclaimed(), err)
			})
		},
	}
	cmd.Flags().BoolVar(&in.TopUp, "top-up", false, "then give the units to the other cells")
	cmd.Flags().BoolVar(&in.WriteOff, "write-off", false, "give the cell and its units up: its shard is gone for good")
	m.flags(cmd)
	m.reasonFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// confirmWriteOff shows a person what would be given up before it asks.
func (c *cli) confirmWriteOff(ctx context.Context, cp *client.Client, in *pb.ReclaimCellRequest) error {
	if !in.GetWriteOff() || c.yes || !c.Terminal || in.GetValidateOnly() {
		return nil
	}
	preview, err := call(ctx, c, cp.Fences.ReclaimCell, &pb.ReclaimCellRequest{CellId: in.GetCellId(), ValidateOnly: true, WriteOff: true, Reason: in.GetReason()})
	if err != nil {
		return fmt.Errorf("reclaim %s: %w", in.GetCellId(), err)
	}
	var sum int64
	for _, s := range preview.GetWrittenOff() {
		sum += int64(s.GetUnits())
	}
	return c.confirm(fmt.Sprintf("Write %s off? %d units of %d SKUs are given up for good, and so is the cell.", in.GetCellId(), sum, len(preview.GetWrittenOff())))
}

func (c *cli) cellRestore() *cobra.Command {
	var m mutation
	var in pb.RestoreCellRequest
	var noWait bool
	cmd := &cobra.Command{
		Use: "restore CELL", Short: "Give a fenced cell's shard a higher version: settle first, then sell", Args: takes("CELL"),
		Example: "  cellctl cell restore cell-2 --reason 'rack is back'\n  cellctl cell restore cell-2 --instance-group rack-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in.CellId, in.OperationId, in.ValidateOnly, in.Reason = args[0], m.operationID, m.dryRun, m.why(cmd)
				out, err := call(ctx, c, cp.Fences.RestoreCell, &in)
				if err != nil {
					return fmt.Errorf("restore %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return c.showMoved(out, out.GetOperation(), "", nil, err)
			})
		},
	}
	cmd.Flags().StringVar(&in.InstanceGroup, "instance-group", "", "group that may hold it (default: the one of its spec)")
	m.flags(cmd)
	m.reasonFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// follow waits for the operation of an answer and puts its end in its place.
func (c *cli) follow(ctx context.Context, cp *client.Client, op **pb.Operation, leave bool) error {
	if leave || *op == nil {
		return nil
	}
	ended, err := c.wait(ctx, cp, *op)
	*op = ended
	return err
}

// showMoved shows an operation's answer with the units it moves, also when it did not end well: err is
// what the command ends with.
func (c *cli) showMoved(m messageOf, op *pb.Operation, title string, moved []*pb.SkuUnits, err error) error {
	v := render.View{Message: m}
	if op != nil {
		steps := stepTable(op)
		steps.Title = "STEPS"
		v.Tables = append(v.Tables, steps, opTable(op))
	}
	if len(moved) > 0 || op == nil {
		t := render.Table{Title: title, Columns: render.Columns("CAMPAIGN", "SKU", "#UNITS")}
		for _, s := range moved {
			t.Rows = append(t.Rows, []string{s.GetCampaignId(), s.GetSkuId(), count(s.GetUnits())})
		}
		v.Tables = append([]render.Table{t}, v.Tables...)
	}
	if shown := c.show(v); shown != nil {
		return shown
	}
	return err
}
