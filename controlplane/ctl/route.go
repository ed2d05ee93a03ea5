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

func (c *cli) routeCommand() *cobra.Command {
	return group("route", "See where customers are at home, and move them",
		"  cellctl route show double-eleven\n  cellctl route lookup double-eleven --user alice\n  cellctl route handover double-eleven --from cell-1 --to cell-5 --buckets 0-511",
		c.routeShow(), c.routeLookup(), c.routeHandover())
}

func (c *cli) routeLookup() *cobra.Command {
	in := &pb.LookupHomeRequest{}
	cmd := &cobra.Command{
		Use: "lookup CAMPAIGN --user USER", Short: "Show the home cell of one user", Args: takes("CAMPAIGN"),
		Example: "  cellctl route lookup double-eleven --user alice\n  cellctl route lookup double-eleven --user alice --domain east",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				in.CampaignId = args[0]
				out, err := call(ctx, c, cp.Routing.LookupHome, in)
				if err != nil {
					return fmt.Errorf("home of %q in %s: %w", in.GetUserId(), args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{{
					Columns: render.Columns("CELL", "#BUCKET", "#ROUTE VERSION"),
					Rows:    [][]string{{out.GetCellId(), count(out.GetBucket()), number(out.GetRouteVersion())}},
				}}})
			})
		},
	}
	cmd.Flags().StringVar(&in.UserId, "user", "", "user id")
	cmd.Flags().StringVar(&in.Domain, "domain", "", "traffic domain (routing HOME_REGION: the home region)")
	required(cmd, "user")
	return cmd
}
