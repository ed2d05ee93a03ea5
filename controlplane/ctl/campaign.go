package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) campaignCommand() *cobra.Command {
	return group("campaign", "Describe, publish and close campaigns",
		"  cellctl campaign validate -f campaign.yaml\n  cellctl campaign create -f campaign.yaml && cellctl campaign publish double-eleven",
		c.campaignCreate(), c.campaignValidate(), c.campaignSchema(), c.campaignPublish(), c.campaignList(), c.campaignGet(), c.campaignClose(),
		c.campaignUpdate(), c.campaignPause(), c.campaignResume(), c.campaignAddCell(), c.campaignCancel(), c.campaignDelete(), c.campaignPreflight(), c.campaignWait(), c.campaignWatch(), c.campaignSetLimit(), c.campaignReport())
}

func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "", "campaign.yaml; - is standard input")
	required(cmd, "file")
}

func (c *cli) campaignValidate() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "validate -f campaign.yaml", Short: "Report every fault of a campaign file at once", Args: takes(),
		Example: "  cellctl campaign validate -f campaign.yaml\n  cellctl campaign validate -f campaign.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := c.readFile(file)
			if err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.ValidateCampaign, &pb.ValidateCampaignRequest{Yaml: text})
				if err != nil {
					return fmt.Errorf("validate %s: %w", file, err)
				}
				return c.showFaults(file, out)
			})
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

func (c *cli) campaignSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of campaign.yaml", Args: takes(),
		Long:    "For editors and checks before a commit; no platform is asked. What several values must agree on,\nand which cells there are, only `campaign validate` says.",
		Example: "  cellctl campaign schema > campaign.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := c.Out.Write(campaignfile.Schema())
			return err
		},
	}
}

func (c *cli) showFaults(file string, out *pb.ValidateCampaignResponse) error {
	v := render.View{Message: out, Lines: warnings(out.GetWarnings())}
	t := render.Table{Columns: render.Columns("PATH", "#LINE", "#COLUMN", "RULE")}
	var broken []rpcstatus.Violation
	for _, f := range out.GetFaults() {
		t.Rows = append(t.Rows, []string{f.GetPath(), count(f.GetLine()), count(f.GetColumn()), f.GetRule()})
		at := fmt.Sprintf("%s:%d", file, f.GetLine())
		if f.GetPath() != "" { // what is no YAML has none
			at += ": " + f.GetPath()
		}
		broken = append(broken, rpcstatus.Violation{Field: at, Rule: f.GetRule()})
	}
	if len(broken) == 0 {
		v.Lines = append(v.Lines, fmt.Sprintf("%s: campaign %s is valid", file, out.GetSpec().GetCampaignId()))
	}
	v.Tables = []render.Table{t}
	if len(broken) == 0 && c.format != render.FormatCSV {
		v.Tables = nil
	}
	if err := c.show(v); err != nil || len(broken) == 0 {
		return err
	}
	if c.Terminal && c.format == render.FormatTable {
		broken = nil // both streams are the one screen, and the table is on it
	}
	return faulty(file+": "+faults(len(out.GetFaults())), broken)
}

func warnings(list []string) []string {
	var lines []string
	for _, w := range list {
		lines = append(lines, "warning: "+w)
	}
	return lines
}

func (c *cli) campaignCreate() *cobra.Command {
	var m mutation
	var file string
	cmd := &cobra.Command{
		Use: "create -f campaign.yaml", Short: "Store a campaign as a draft", Args: takes(),
		Long:    "Stores a draft; nothing is allocated and nothing on sale before publish. A repeat with the same\nfile is the same draft.",
		Example: "  cellctl campaign create -f campaign.yaml\n  cellctl campaign create -f campaign.yaml --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := c.readFile(file)
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.CreateCampaign, &pb.CreateCampaignRequest{Yaml: text, OperationId: m.operationID, ValidateOnly: m.dryRun})
				if err != nil {
					return fmt.Errorf("create campaign from %s: %w", file, err)
				}
				return c.show(campaignView(out, out.GetCampaign()))
			})
		},
	}
	fileFlag(cmd, &file)
	m.flags(cmd)
	return cmd
}

func (c *cli) campaignPublish() *cobra.Command {
	var m mutation
	var noWait bool
	cmd := &cobra.Command{
		Use: "publish CAMPAIGN", Short: "Cut the limits, send first grants, put it on sale", Args: takes("CAMPAIGN"),
		Long:    "Ends when every live edge and cell has the version. A SKU that does not fit its physical stock\nleaves the campaign a draft.",
		Example: "  cellctl campaign publish double-eleven --dry-run\n  cellctl campaign publish double-eleven --timeout 2m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.PublishCampaign, &pb.PublishCampaignRequest{
					CampaignId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version,
				})
				if err != nil {
					return fmt.Errorf("publish %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				if now, gerr := cp.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: args[0]}); gerr == nil && !m.dryRun {
					out.Campaign = now.GetCampaign()
				}
				return errors.Join(c.show(campaignView(out, out.GetCampaign())), err)
			})
		},
	}
	m.flags(cmd)
	m.versionFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func (c *cli) campaignClose() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "close CAMPAIGN", Short: "End the sale now; payments and closings go on", Args: takes("CAMPAIGN"),
		Example: "  cellctl campaign close double-eleven --reason 'sold out in the shops'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("Close %s? It cannot be opened again.", args[0])); err != nil {
					return err
				}
			}
			return c.changeCampaign(cmd, &m, "close", args[0], func(ctx context.Context, cp *client.Client) (campaignAnswer, error) {
				return call(ctx, c, cp.Campaigns.CloseCampaign, &pb.CloseCampaignRequest{
					CampaignId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
			})
		},
	}
	m.all(cmd)
	return cmd
}

func (c *cli) campaignList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List campaigns", Args: takes(),
		Example: "  cellctl campaign list\n  cellctl campaign list -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all := &pb.ListCampaignsResponse{}
				for {
					page, err := call(ctx, c, cp.Campaigns.ListCampaigns, &pb.ListCampaignsRequest{PageSize: 1000, PageToken: all.GetNextPageToken()})
					if err != nil {
						return fmt.Errorf("list campaigns: %w", err)
					}
					all.Campaigns, all.NextPageToken = append(all.Campaigns, page.GetCampaigns()...), page.GetNextPageToken()
					if all.GetNextPageToken() == "" {
						return c.show(render.View{Message: all, Tables: []render.Table{campaignTable(all.GetCampaigns())}})
					}
				}
			})
		},
	}
}

func (c *cli) campaignGet() *cobra.Command {
	return &cobra.Command{
		Use: "get CAMPAIGN", Short: "Show one campaign", Args: takes("CAMPAIGN"),
		Example: "  cellctl campaign get double-eleven\n  cellctl campaign get double-eleven -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.GetCampaign, &pb.GetCampaignRequest{CampaignId: args[0]})
				if err != nil {
					return fmt.Errorf("get campaign %s: %w", args[0], err)
				}
				return c.show(campaignView(out, out.GetCampaign()))
			})
		},
	}
}

func campaignView(m messageOf, campaign *pb.Campaign) render.View {
	v := render.View{Message: m, Lines: warnings(campaign.GetWarnings())}
	for _, b := range campaign.GetBlockedBy() {
		v.Lines = append(v.Lines, "blocked by "+b)
	}
	if campaign.GetCancelled() {
		v.Lines = append(v.Lines, "cancelled")
	}
	skus := render.Table{Title: "SKUS", Columns: render.Columns("SKU", "#LIMIT", "#RESERVE", "#PHYSICAL", "PRICE", "SALE")}
	for _, s := range campaign.GetSpec().GetSkus() {
		skus.Rows = append(skus.Rows, []string{
			s.GetSkuId(), count(s.GetSaleLimit()), count(s.GetReserve()), count(s.GetPhysicalStock()), s.GetPrice().GetAmount() + " " + s.GetPrice().GetCurrency(),
			skuWord(campaign, s.GetSkuId()),
		})
	}
	t := campaignTable([]*pb.Campaign{campaign})
	t.Title = "CAMPAIGN"
	v.Tables = []render.Table{skus, t}
	return v
}

// skuWord says what stands against one SKU's sale beside the campaign's state.
func skuWord(campaign *pb.Campaign, sku string) string {
	switch {
	case slices.Contains(campaign.GetFinalSkus(), sku):
		return "FINAL_SOLD_OUT"
	case slices.Contains(campaign.GetPausedSkus(), sku):
		return "PAUSED"
	}
	return ""
}

func campaignTable(list []*pb.Campaign) render.Table {
	t := render.Table{Columns: render.Columns("CAMPAIGN", "STATE", "OPENS", "CLOSES", "#SKUS", "#CELLS", "#VERSION", "+OWNER")}
	for _, x := range list {
		t.Rows = append(t.Rows, []string{
			x.GetSpec().GetCampaignId(), render.Word(x.GetState()), render.Instant(x.GetSpec().GetOpenAt()), render.Instant(x.GetSpec().GetCloseAt()),
			number(int64(len(x.GetSpec().GetSkus()))), number(int64(len(x.GetSpec().GetCells()))), number(x.GetVersion()), x.GetOwner(),
		})
	}
	return t
}
