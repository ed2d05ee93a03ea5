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

func (c *cli) cellCheck() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "check CELL | -f cell.yaml", Short: "Look at a cell's Redis, Kafka, PostgreSQL, clocks and processes", Args: cobra.MaximumNArgs(1),
		Long: "Names everything that is not as a cell needs it, with what was seen and what must be, and changes\n" +
			"nothing. The control plane looks, so it is what the control plane reaches that counts. With -f the\n" +
			"file is looked at before it is provisioned or updated: as an sre, for the control plane reads the\n" +
			"secret files that it names; a region-operator (--role) names those of secrets_dir/REGION, or the\n" +
			"stored cell's own. Exit code 4 when anything is wrong.",
		Example: "  cellctl cell check cell-1\n  cellctl cell check -f cell-9.yaml\n  cellctl cell check cell-1 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &pb.CheckCellRequest{}
			what, role := file, target.RegionOperator
			switch {
			case (len(args) == 1) == (file != ""):
				return usage("give either a CELL or -f")
			case file != "":
				spec, err := c.cellFile(file)
				if err != nil {
					return err
				}
				in.Spec, role = spec, target.SRE
			default:
				in.CellId, what = args[0], args[0]
			}
			return c.speak(cmd.Context(), role, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Cells.CheckCell, in)
				if err != nil {
					return fmt.Errorf("check %s: %w", what, err)
				}
				if err := c.show(checkView(out)); err != nil {
					return err
				}
				if n := faultsIn(out); n > 0 || !out.GetOk() {
					return fmt.Errorf("check %s: %d of %d looks: %w", what, n, len(out.GetFindings()), errFaulty)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "cell.yaml; - is standard input")
	return cmd
}

func faultsIn(out *pb.CheckCellResponse) (n int) {
	for _, f := range out.GetFindings() {
		if !f.GetOk() {
			n++
		}
	}
	return n
}

func checkView(out *pb.CheckCellResponse) render.View {
	t := render.Table{Columns: render.Columns("PART", "SUBJECT", "OK", "SEEN", "RULE")}
	for _, f := range out.GetFindings() {
		ok := "NO"
		if f.GetOk() {
			ok = "yes"
		}
		t.Rows = append(t.Rows, []string{f.GetPart(), f.GetSubject(), ok, f.GetSeen(), f.GetRule()})
	}
	return render.View{Message: out, Tables: []render.Table{t}}
}
