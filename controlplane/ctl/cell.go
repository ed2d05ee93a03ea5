package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) cellCommand() *cobra.Command {
	return group("cell", "Provision, watch, fence and restore cells", "  cellctl cell list\n  cellctl cell get cell-1",
		c.cellProvision(), c.cellUpdate(), c.cellCheck(), c.cellList(), c.cellGet(), c.cellGate(), c.cellPause(), c.cellResume(), c.cellFence(), c.cellReclaim(), c.cellRestore(), c.cellDrain(), c.cellRetire(), c.cellRebuildMirror())
}

func (c *cli) cellProvision() *cobra.Command {
	var m mutation
	var file string
	cmd := &cobra.Command{
		Use: "provision -f cell.yaml", Short: "Make a cell known and its shard and topic ready", Args: takes(),
		Long: "Writes the cell's record, the fence row of its shard and its topic. A repeat with the same file\nis the same cell.",
		Example: "  cellctl cell provision -f cell-1.yaml\n" +
			"  cellctl cell provision -f cell-1.yaml --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := c.cellFile(file)
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.RegionOperator, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.CreateCell, &pb.CreateCellRequest{Spec: spec, OperationId: m.operationID, ValidateOnly: m.dryRun})
				if err != nil {
					return fmt.Errorf("provision %s: %w", spec.GetCellId(), err)
				}
				return c.show(cellView(out, out.GetCell()))
			})
		},
	}
	cellFileFlag(cmd, &file)
	m.flags(cmd)
	return cmd
}

// violations are a file's faults as rules with their lines.
func violations(faults []campaignfile.Fault) []rpcstatus.Violation {
	return rpcstatus.Violations(campaignfile.Error(faults))
}

func (c *cli) cellList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List cells", Args: takes(),
		Example: "  cellctl cell list\n  cellctl cell list -o wide\n  cellctl cell list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all, err := allCells(ctx, c, cp)
				if err != nil {
					return err
				}
				return c.show(render.View{Message: all, Tables: []render.Table{cellTable(all.GetCells())}})
			})
		},
	}
}

// allCells reads every page.
func allCells(ctx context.Context, c *cli, cp *client.Client) (*pb.ListCellsResponse, error) {
	all := &pb.ListCellsResponse{}
	for {
		page, err := call(ctx, c, cp.Cells.ListCells, &pb.ListCellsRequest{PageSize: 1000, PageToken: all.GetNextPageToken()})
		if err != nil {
			return nil, fmt.Errorf("list cells: %w", err)
		}
		all.Cells, all.NextPageToken = append(all.Cells, page.GetCells()...), page.GetNextPageToken()
		if all.GetNextPageToken() == "" {
			return all, nil
		}
	}
}

func (c *cli) cellGet() *cobra.Command {
	return &cobra.Command{
		Use: "get CELL", Short: "Show one cell: state, processes, units at risk", Args: takes("CELL"),
		Example: "  cellctl cell get cell-2\n  cellctl cell get cell-2 -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.GetCell, &pb.GetCellRequest{CellId: args[0]})
				if err != nil {
					return fmt.Errorf("get cell %s: %w", args[0], err)
				}
				return c.show(cellView(out, out.GetCell()))
			})
		},
	}
}

func (c *cli) cellGate() *cobra.Command {
	return &cobra.Command{
		Use: "gate CELL", Short: "Show the gates of a cell's processes and what moves them", Args: takes("CELL"),
		Example: "  cellctl cell gate cell-1\n  cellctl cell gate cell-1 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.GetGate, &pb.CellAdminServiceGetGateRequest{CellId: args[0]})
				if err != nil {
					return fmt.Errorf("gate of %s: %w", args[0], err)
				}
				if err := c.show(gateView(out)); err != nil {
					return err
				}
				if len(out.GetUnreachable()) > 0 {
					return fmt.Errorf("gate of %s: %d processes did not answer: %w", args[0], len(out.GetUnreachable()), errUnchecked)
				}
				return nil
			})
		},
	}
}

// cellView shows one cell; m is the whole answer.
func cellView(m messageOf, cell *pb.Cell) render.View {
	v := render.View{Message: m, Tables: []render.Table{cellTable([]*pb.Cell{cell})}}
	if len(cell.GetInstances()) == 0 {
		return v
	}
	t := render.Table{Title: "PROCESSES", Columns: render.Columns("PROCESS", "ADDRESS", "ROLES", "#LEASE", "REPORTER", "FAULTS", "+VERSION")}
	for _, i := range cell.GetInstances() {
		t.Rows = append(t.Rows, []string{
			i.GetInstanceId(), i.GetAddress(), strings.Join(i.GetRoles(), ","), leaseWord(i.GetLeaseRemainingMs()),
			yes(i.GetReporter()), strings.Join(i.GetFaults(), ","), i.GetProgramVersion(),
		})
	}
	v.Tables = []render.Table{t, v.Tables[0]}
	v.Tables[1].Title = "CELL"
	return v
}

// leaseWord is a lease's rest; "?" where only the leader knows it and was not asked.
func leaseWord(ms int64) string {
	if ms < 0 {
		return "?"
	}
	return millis(ms)
}

// known is a figure of the leader's, "?" where it could not be asked.
func known(cell *pb.Cell, figure string) string {
	if cell.GetLivenessUnknown() != "" {
		return "?"
	}
	return figure
}

// cellTable is one line for each cell. The first column is its name; what matters at three in the morning
// is never in a wide column alone.
func cellTable(cells []*pb.Cell) render.Table {
	t := render.Table{Columns: render.Columns("CELL", "REGION", "STATE", "#FENCE", "#PROCESSES", "#LEASE", "#ALLOCATED", "#AT RISK", "#FROZEN", "#REPORTED", "SHARD", "PAUSED", "OPERATION", "FAULTS", "+GROUP", "+#WEIGHT", "+#VERSION", "+SHARD DETAIL")}
	for _, cell := range cells {
		t.Rows = append(t.Rows, []string{
			cell.GetSpec().GetCellId(), cell.GetSpec().GetRegion(), render.Word(cell.GetState()), number(cell.GetFenceVersion()),
			number(int64(len(cell.GetInstances()))), known(cell, longestLease(cell)), number(cell.GetAllocatedUnits()), known(cell, number(cell.GetUnitsAtRisk())),
			frozenUnits(cell), known(cell, reported(cell)), reachable(cell), pausedWord(cell), cell.GetOperationId(), known(cell, faultsOf(cell)),
			groupOf(cell), number(int64(cell.GetSpec().GetWeight())), number(cell.GetVersion()), cell.GetShardDetail(),
		})
	}
	return t
}

// longestLease is how long the cell reads as alive if nobody says anything more.
func longestLease(cell *pb.Cell) string {
	if len(cell.GetInstances()) == 0 {
		return ""
	}
	var most int64
	for _, i := range cell.GetInstances() {
		most = max(most, i.GetLeaseRemainingMs())
	}
	return millis(most)
}

// reported is the age of the last report; one too old to act on is marked.
func reported(cell *pb.Cell) string {
	text := age(cell.GetLastReportAgeMs())
	if cell.GetReportStale() {
		text += " STALE"
	}
	return text
}

// frozenUnits are "" where none are: a cell that is not being fenced has nothing frozen.
func frozenUnits(cell *pb.Cell) string {
	if cell.GetFrozenUnits() == 0 {
		return ""
	}
	return number(cell.GetFrozenUnits())
}

func pausedWord(cell *pb.Cell) string {
	if !cell.GetPaused() {
		return ""
	}
	return or(cell.GetPauseReason(), "yes")
}

// faultsOf are the readiness faults of the cell's processes, each once.
func faultsOf(cell *pb.Cell) string {
	var all []string
	for _, i := range cell.GetInstances() {
		all = append(all, i.GetFaults()...)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// groupOf is the group that may register; a restore can give the cell to another than its file's.
func groupOf(cell *pb.Cell) string {
	return or(cell.GetInstanceGroup(), cell.GetSpec().GetInstanceGroup())
}
