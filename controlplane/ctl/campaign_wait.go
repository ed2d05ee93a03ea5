package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) campaignPreflight() *cobra.Command {
	return &cobra.Command{
		Use: "preflight CAMPAIGN", Short: "Ask every process and edge whether it could serve the campaign now", Args: takes("CAMPAIGN"),
		Long:    "A shadow request to every live process of every cell: rules, keys, library, mirror and gate, and\nwhat each edge has acknowledged. It takes nothing. Exit 6 when something is missing.",
		Example: "  cellctl campaign preflight double-eleven\n  cellctl campaign preflight double-eleven -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.PreflightCampaign, &pb.PreflightCampaignRequest{CampaignId: args[0]})
				if err != nil {
					return fmt.Errorf("preflight %s: %w", args[0], err)
				}
				if err := c.show(preflightView(out)); err != nil || out.GetReady() {
					return err
				}
				return fmt.Errorf("%s: not everybody could serve version %d: %w", args[0], out.GetVersion(), errNotYet)
			})
		},
	}
}

func preflightView(out *pb.PreflightCampaignResponse) render.View {
	t := render.Table{Columns: render.Columns("KIND", "CELL", "INSTANCE", "READY", "#VERSION", "FAULTS", "+LIBRARY", "+KEYS")}
	for _, r := range out.GetRows() {
		t.Rows = append(t.Rows, []string{
			r.GetKind(), r.GetCellId(), r.GetInstanceId(), yes(r.GetReady()), number(r.GetVersion()), strings.Join(r.GetFaults(), "; "), r.GetLibrary(), strings.Join(r.GetKeys(), " "),
		})
	}
	return render.View{Message: out, Tables: []render.Table{t}}
}

// waitEvery is the pause between two looks of wait and watch.
const waitEvery = 500 * time.Millisecond

func (c *cli) campaignWait() *cobra.Command {
	var what string
	cmd := &cobra.Command{
		Use: "wait CAMPAIGN --for STATE|final|version", Short: "Wait until a campaign is in a state; exit 6 past --timeout", Args: takes("CAMPAIGN"),
		Long: "STATE is a campaign's state, in any case; PUBLISHED, CLOSED and SETTLED are reached by later ones too. final: every\n" +
			"SKU is FINAL_SOLD_OUT. version: every process and edge serves the newest version. A state that cannot\ncome any more ends with exit 4.",
		Example: "  cellctl campaign wait double-eleven --for OPEN --timeout 2m\n  cellctl campaign wait double-eleven --for version",
		RunE: func(cmd *cobra.Command, args []string) error {
			condition, err := waitFor(what)
			if err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				return c.waitCampaign(ctx, cp, args[0], what, condition)
			})
		},
	}
	cmd.Flags().StringVar(&what, "for", "", "what to wait for: a state, final or version")
	required(cmd, "for")
	fixed(cmd, "for", "PUBLISHED", "OPEN", "PAUSED", "CLOSED", "SETTLED", "final", "version")
	return cmd
}

// condition tells whether it is so; errNever: it cannot come any more.
type condition func(ctx context.Context, cp *client.Client, campaign *pb.Campaign) (bool, error)

func waitFor(what string) (condition, error) {
	switch strings.ToLower(what) {
	case "final":
		return allFinal, nil
	case "version":
		return allServe, nil
	}
	n, known := pb.CampaignState_value["CAMPAIGN_STATE_"+strings.ToUpper(what)]
	if !known || n == 0 {
		return nil, usage("--for %q: must be a state such as CLOSED, final or version", what)
	}
	return func(_ context.Context, _ *client.Client, campaign *pb.Campaign) (bool, error) {
		return reached(campaign.GetState(), pb.CampaignState(n))
	}, nil
}

// reached tells whether a state is the wanted one or lies behind it; errNever where
// the wanted one cannot come any more.
func reached(now, want pb.CampaignState) (bool, error) {
	over := now == pb.CampaignState_CAMPAIGN_STATE_CLOSED || now == pb.CampaignState_CAMPAIGN_STATE_SETTLED
	switch {
	case now == want:
		return true, nil
	case want == pb.CampaignState_CAMPAIGN_STATE_PUBLISHED:
		return over || now == pb.CampaignState_CAMPAIGN_STATE_OPEN || now == pb.CampaignState_CAMPAIGN_STATE_PAUSED, nil
	case want == pb.CampaignState_CAMPAIGN_STATE_CLOSED:
		return over, nil
	case over && want != pb.CampaignState_CAMPAIGN_STATE_SETTLED:
		return false, fmt.Errorf("it is %s and will not be %s any more: %w", render.Word(now), render.Word(want), errNever)
	}
	return false, nil
}

func allFinal(_ context.Context, _ *client.Client, campaign *pb.Campaign) (bool, error) {
	if len(campaign.GetFinalSkus()) == len(campaign.GetSpec().GetSkus()) {
		return true, nil
	}
	if campaign.GetState() == pb.CampaignState_CAMPAIGN_STATE_SETTLED {
		return false, fmt.Errorf("it is SETTLED without being sold out: %w", errNever)
	}
	return false, nil
}

func allServe(ctx context.Context, cp *client.Client, campaign *pb.Campaign) (bool, error) {
	out, err := cp.Campaigns.PreflightCampaign(ctx, &pb.PreflightCampaignRequest{CampaignId: campaign.GetSpec().GetCampaignId()})
	if err != nil {
		return false, nil //nolint:nilerr // it is asked again until the time is over
	}
	for _, r := range out.GetRows() {
		if r.GetVersion() < out.GetVersion() {
			return false, nil
		}
	}
	return true, nil
}

func (c *cli) waitCampaign(ctx context.Context, cp *client.Client, id, what string, so condition) error {
	for {
		out, err := call(ctx, c, cp.Campaigns.GetCampaign, &pb.GetCampaignRequest{CampaignId: id})
		if err != nil {
			return fmt.Errorf("wait for %s: %w", id, err)
		}
		is, err := so(ctx, cp, out.GetCampaign())
		if is || err != nil {
			if err != nil {
				err = fmt.Errorf("%s: %w", id, err)
			}
			return joinShown(c.show(campaignView(out, out.GetCampaign())), err)
		}
		if c.Clock.Sleep(ctx, waitEvery) != nil {
			return joinShown(c.show(campaignView(out, out.GetCampaign())), fmt.Errorf("%s: %w: waiting for %s", id, errNotYet, what))
		}
	}
}
