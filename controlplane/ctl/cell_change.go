package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func cellFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "", "cell.yaml; - is standard input")
	required(cmd, "file")
}

// cellFile reads cell.yaml; a faulty one names path, line and rule of every fault.
func (c *cli) cellFile(file string) (*pb.CellSpec, error) {
	text, err := c.readFile(file)
	if err != nil {
		return nil, err
	}
	spec, faults := campaignfile.CellProto(text)
	if len(faults) > 0 {
		return nil, faulty(file+": not a valid cell", violations(faults))
	}
	return spec, nil
}

func (c *cli) cellUpdate() *cobra.Command {
	var m mutation
	var file string
	cmd := &cobra.Command{
		Use: "update -f cell.yaml", Short: "Replace a cell's file: weight, region, addresses, secret files", Args: takes(),
		Long: "What a cell is known by stays: cell_id, instance_group, kafka.topic and kafka.partitions are refused by\n" +
			"their paths, all at once. Running processes of the cell keep the configuration they were started with;\n" +
			"this changes what the control plane knows of the cell. Published campaigns keep their buckets and units:\n" +
			"a new weight or region counts for campaigns that are published later. Another fencer_dsn_file must lead\n" +
			"to the shard that holds this cell's fence row.",
		Example: "  cellctl cell update -f cell-1.yaml --dry-run\n  cellctl cell update -f cell-1.yaml --reason 'a bigger shard'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := c.cellFile(file)
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.RegionOperator, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.UpdateCell, &pb.UpdateCellRequest{
					Spec: spec, OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("update cell from %s: %w", file, err)
				}
				v := cellView(out, out.GetCell())
				v.Lines = append(v.Lines, changedLine(out.GetChanged(), m.dryRun))
				return c.show(v)
			})
		},
	}
	cellFileFlag(cmd, &file)
	m.all(cmd)
	return cmd
}

func (c *cli) cellPause() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "pause CELL", Short: "Stop a cell's sales until it is resumed", Args: takes("CELL"),
		Long: "Nothing new is admitted in any campaign: its customers are told PAUSED, the other cells sell on.\n" +
			"Payments and closings go on. The cell's shard keeps it, so a restart does not forget it, with or\n" +
			"without the control plane. No unit and no bucket moves.",
		Example: "  cellctl cell pause cell-2 --reason 'its disks are slow'\n  cellctl cell pause cell-2 --dry-run --reason drill",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeCell(cmd, &m, "pause", args[0], func(ctx context.Context, cp *client.Client) (cellAnswer, error) {
				return call(ctx, c, cp.Cells.PauseCell, &pb.PauseCellRequest{
					CellId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
			})
		},
	}
	m.all(cmd)
	return cmd
}

func (c *cli) cellResume() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "resume CELL", Short: "Undo pause", Args: takes("CELL"),
		Long:    "The gates of the cell ramp up in steps, as after any pause.",
		Example: "  cellctl cell resume cell-2\n  cellctl cell resume cell-2 --reason 'new disks'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeCell(cmd, &m, "resume", args[0], func(ctx context.Context, cp *client.Client) (cellAnswer, error) {
				return call(ctx, c, cp.Cells.ResumeCell, &pb.ResumeCellRequest{
					CellId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
			})
		},
	}
	m.all(cmd)
	return cmd
}

// cellAnswer is the answer to a mutation that gives the cell.
type cellAnswer interface {
	messageOf
	GetCell() *pb.Cell
}

// changeCell makes one mutation of a cell and shows what came of it.
func (c *cli) changeCell(cmd *cobra.Command, m *mutation, what, cell string, change func(context.Context, *client.Client) (cellAnswer, error)) error {
	if err := m.begin(c); err != nil {
		return err
	}
	return c.speak(cmd.Context(), target.RegionOperator, func(ctx context.Context, cp *client.Client) error {
		out, err := change(ctx, cp)
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, cell, err)
		}
		return c.show(cellView(out, out.GetCell()))
	})
}
