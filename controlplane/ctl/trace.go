package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) traceCommand() *cobra.Command {
	return group("trace", "Tell the story of one id over every store", "  cellctl trace order cell-1.o…\n  cellctl trace request r-17 --user alice",
		c.traceKind("request", "  cellctl trace request r-17 --campaign double-eleven --sku phone-x --user alice"),
		c.traceKind("reservation", "  cellctl trace reservation cell-1.r…"),
		c.traceKind("order", "  cellctl trace order cell-1.o…\n  cellctl trace order cell-1.o… -o json"),
		c.traceKind("payment", "  cellctl trace payment pay-1"),
		c.traceKind("event", "  cellctl trace event outbox-cell-1-20417"),
		c.traceKind("token", "  cellctl trace token cell-1.t…-000017"),
		c.traceKind("user", "  cellctl trace user alice --campaign double-eleven"),
		c.traceKind("adjustment", "  cellctl trace adjustment top-up-7"),
		c.traceKind("entry", "  cellctl trace entry 4711"))
}

func (c *cli) traceKind(kind, example string) *cobra.Command {
	in := &pb.TraceRequest{Kind: kind}
	cmd := &cobra.Command{
		Use: kind + " ID", Short: "Tell the story of one " + kind, Args: takes("ID"), Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in.Id = args[0]
				out, err := call(ctx, c, cp.Reports.Trace, in)
				if err != nil {
					return fmt.Errorf("trace %s %s: %w", kind, args[0], err)
				}
				if err := c.show(traceView(out)); err != nil {
					return err
				}
				if n := len(out.GetUnreachable()); n > 0 {
					return fmt.Errorf("trace %s %s: %d stores did not answer: %w", kind, args[0], n, errUnchecked)
				}
				return nil
			})
		},
	}
	if kind == "request" || kind == "user" {
		f := cmd.Flags()
		f.StringVar(&in.CampaignId, "campaign", "", "of this campaign only")
		f.StringVar(&in.SkuId, "sku", "", "of this SKU only")
		if kind == "request" {
			f.StringVar(&in.UserId, "user", "", "of this user only")
		}
	}
	return cmd
}

func traceView(out *pb.TraceResponse) render.View {
	v := render.View{Message: out}
	for _, name := range slices.Sorted(maps.Keys(out.GetUnreachable())) {
		v.Lines = append(v.Lines, fmt.Sprintf("%s did not answer: %s", name, out.GetUnreachable()[name]))
	}
	t := render.Table{Columns: render.Columns("AT", "CELL", "STORE", "WHAT", "FIELDS")}
	for _, e := range out.GetEvents() {
		var fields []string
		for _, k := range slices.Sorted(maps.Keys(e.GetFields())) {
			fields = append(fields, k+"="+e.GetFields()[k])
		}
		t.Rows = append(t.Rows, []string{render.Instant(e.GetAt()), e.GetCellId(), e.GetStore(), e.GetWhat(), strings.Join(fields, " ")})
	}
	v.Tables = []render.Table{t}
	return v
}
