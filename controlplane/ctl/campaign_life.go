package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) campaignUpdate() *cobra.Command {
	var m mutation
	var file string
	cmd := &cobra.Command{
		Use: "update -f campaign.yaml", Short: "Replace a campaign's file", Args: takes(),
		Long:    "A draft changes wholly. Of a published campaign only close_at (later), display, limits, top_up and\nrebalance may differ; every other difference is named by its path and refused.",
		Example: "  cellctl campaign update -f campaign.yaml --dry-run\n  cellctl campaign update -f campaign.yaml --reason 'ten minutes more'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := c.readFile(file)
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.UpdateCampaign, &pb.UpdateCampaignRequest{
					Yaml: text, OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("update campaign from %s: %w", file, err)
				}
				v := campaignView(out, out.GetCampaign())
				v.Lines = append(v.Lines, changedLine(out.GetChanged(), m.dryRun))
				return c.show(v)
			})
		},
	}
	fileFlag(cmd, &file)
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	return cmd
}

func changedLine(paths []string, dry bool) string {
	switch {
	case len(paths) == 0:
		return "nothing differs"
	case dry:
		return "would change: " + strings.Join(paths, ", ")
	}
	return "changed: " + strings.Join(paths, ", ")
}

func (c *cli) campaignPause() *cobra.Command {
	var m mutation
	var sku string
	cmd := &cobra.Command{
		Use: "pause CAMPAIGN", Short: "Stop the sale of a campaign, or of one SKU, until it is resumed", Args: takes("CAMPAIGN"),
		Long:    "Nothing new is admitted; what was admitted becomes an order, and payments and closings go on.\nThe window goes on too: pausing does not move close_at.",
		Example: "  cellctl campaign pause double-eleven --reason 'a wrong price'\n  cellctl campaign pause double-eleven --sku phone-x --reason 'a wrong picture'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeCampaign(cmd, &m, "pause", args[0], func(ctx context.Context, cp *client.Client) (campaignAnswer, error) {
				return call(ctx, c, cp.Campaigns.PauseCampaign, &pb.PauseCampaignRequest{
					CampaignId: args[0], SkuId: sku, OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
			})
		},
	}
	skuFlag(cmd, &sku)
	m.all(cmd)
	return cmd
}

func (c *cli) campaignResume() *cobra.Command {
	var m mutation
	var sku string
	cmd := &cobra.Command{
		Use: "resume CAMPAIGN", Short: "Undo pause", Args: takes("CAMPAIGN"),
		Long:    "SKUs that were paused by name stay paused when their campaign is resumed. A campaign whose\nclose_at has passed meanwhile is over and not resumed.",
		Example: "  cellctl campaign resume double-eleven\n  cellctl campaign resume double-eleven --sku phone-x",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeCampaign(cmd, &m, "resume", args[0], func(ctx context.Context, cp *client.Client) (campaignAnswer, error) {
				return call(ctx, c, cp.Campaigns.ResumeCampaign, &pb.ResumeCampaignRequest{
					CampaignId: args[0], SkuId: sku, OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
			})
		},
	}
	skuFlag(cmd, &sku)
	m.all(cmd)
	return cmd
}

func (c *cli) campaignAddCell() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "add-cell CAMPAIGN CELL", Short: "Let one more cell take part", Args: takes("CAMPAIGN", "CELL"),
		Long:    "The map of buckets was frozen at publish: the cell is home to nobody, and is granted no units,\nuntil buckets are handed over to it.",
		Example: "  cellctl campaign add-cell double-eleven cell-5\n  cellctl campaign add-cell double-eleven cell-5 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeCampaign(cmd, &m, "add "+args[1]+" to", args[0], func(ctx context.Context, cp *client.Client) (campaignAnswer, error) {
				return call(ctx, c, cp.Campaigns.AddCell, &pb.AddCellRequest{
					CampaignId: args[0], CellId: args[1], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
			})
		},
	}
	m.all(cmd)
	return cmd
}

func (c *cli) campaignDelete() *cobra.Command {
	var m mutation
	var noWait bool
	cmd := &cobra.Command{
		Use: "delete CAMPAIGN", Short: "Remove a draft, or a settled campaign whose archive stands", Args: takes("CAMPAIGN"),
		Long:    "What lives is not deleted: `campaign close` ends a sale, and settling follows. The id of a campaign\nthat was sold is never used again; its archive stays.",
		Example: "  cellctl campaign delete draft-7 --reason 'never used'\n  cellctl campaign delete double-eleven --yes --reason 'a year ago'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("Delete %s? Its books and journal leave etcd.", args[0])); err != nil {
					return err
				}
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.DeleteCampaign, &pb.DeleteCampaignRequest{
					CampaignId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("delete %s: %w", args[0], err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return errors.Join(c.show(render.View{Message: out, Lines: []string{deletedLine(args[0], out.GetOperation(), m.dryRun)}}), err)
			})
		},
	}
	m.all(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func deletedLine(campaign string, op *pb.Operation, dry bool) string {
	switch {
	case dry:
		return campaign + " may be deleted"
	case op.GetState() == pb.OperationState_OPERATION_STATE_DONE:
		return campaign + " is deleted"
	}
	return campaign + " is being deleted: " + op.GetStep()
}

func skuFlag(cmd *cobra.Command, sku *string) {
	cmd.Flags().StringVar(sku, "sku", "", "this SKU only")
}

// all gives a command every flag of a mutation.
func (m *mutation) all(cmd *cobra.Command) {
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
}

// campaignAnswer is the answer to a mutation that gives the campaign.
type campaignAnswer interface {
	messageOf
	GetCampaign() *pb.Campaign
}

// changeCampaign makes one mutation of a campaign and shows what came of it.
func (c *cli) changeCampaign(cmd *cobra.Command, m *mutation, what, campaign string, change func(context.Context, *client.Client) (campaignAnswer, error)) error {
	if err := m.begin(c); err != nil {
		return err
	}
	return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
		out, err := change(ctx, cp)
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, campaign, err)
		}
		return c.show(campaignView(out, out.GetCampaign()))
	})
}
