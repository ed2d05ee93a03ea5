package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/allocator/evidence"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) lotteryCommand() *cobra.Command {
	return group("lottery", "Draw a campaign's winners, and repeat the draw from its evidence",
		"  cellctl lottery draw double-eleven --beacon 'SSE close 3041.17'\n  cellctl lottery verify double-eleven",
		c.lotteryDraw(), c.lotteryVerify())
}

func (c *cli) lotteryDraw() *cobra.Command {
	var m mutation
	var beacon string
	var noWait bool
	cmd := &cobra.Command{
		Use: "draw CAMPAIGN", Short: "Close entry and draw every SKU's winners over all cells", Args: takes("CAMPAIGN"),
		Long: "Each home shard ends entry; the winners follow from the seed whose SHA-256 was published before the first entry,\n" +
			"the digest of the entrants and the beacon, a public value that nobody could know while entry was open. The\n" +
			"evidence goes to the archive, each shard learns its winners, and each cell is granted their units. A draw is\n" +
			"made once; it cannot be aborted, and a repeat under the same id answers what it came to.",
		Example: "  cellctl lottery draw double-eleven --beacon 'SSE close 3041.17'\n  cellctl lottery draw double-eleven --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.DrawLottery, &pb.DrawLotteryRequest{
					CampaignId: args[0], Beacon: beacon, OperationId: m.operationID, ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("draw %s: %w", args[0], err)
				}
				if err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun); err == nil && !noWait && !m.dryRun {
					err = c.redraw(ctx, cp, out)
				}
				return errors.Join(c.show(render.View{Message: out, Tables: []render.Table{drawTable(out.GetCampaign().GetLottery())}}), err)
			})
		},
	}
	cmd.Flags().StringVar(&beacon, "beacon", "", "public value that is mixed in, at most 256 bytes")
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// redraw reads the campaign as it is after the draw.
func (c *cli) redraw(ctx context.Context, cp *client.Client, out *pb.DrawLotteryResponse) error {
	now, err := call(ctx, c, cp.Campaigns.GetCampaign, &pb.GetCampaignRequest{CampaignId: out.GetCampaign().GetSpec().GetCampaignId()})
	if err == nil {
		out.Campaign = now.GetCampaign()
	}
	return err
}

func drawTable(l *pb.Lottery) render.Table {
	t := render.Table{Columns: render.Columns("SKU", "#ENTRANTS", "#UNITS", "#WINNERS", "#UNGRANTED", "BEACON", "+EVIDENCE", "+SHA256")}
	for _, d := range l.GetDraws() {
		t.Rows = append(t.Rows, []string{
			d.GetSkuId(), number(d.GetEntrants()), count(d.GetUnits()), count(d.GetWinners()), count(d.GetUngranted()), d.GetBeacon(), d.GetEvidence(), d.GetEvidenceSha256(),
		})
	}
	return t
}

func (c *cli) lotteryVerify() *cobra.Command {
	return &cobra.Command{
		Use: "verify CAMPAIGN [SKU]", Short: "Repeat each draw from its evidence and compare", Args: takes("CAMPAIGN", "[SKU]"),
		Long: "Fetches the evidence of each drawn SKU and draws again, here: the seed must be the one that was promised, the\n" +
			"entrants those that were digested, the winners those that a draw gives. What does not hold is named, exit code 4.",
		Example: "  cellctl lottery verify double-eleven\n  cellctl lottery verify double-eleven phone-x -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Campaigns.GetCampaign, &pb.GetCampaignRequest{CampaignId: args[0]})
				if err != nil {
					return fmt.Errorf("verify the lottery of %s: %w", args[0], err)
				}
				return c.verifyDraws(ctx, cp, out.GetCampaign(), append(args, "")[1])
			})
		},
	}
}

func (c *cli) verifyDraws(ctx context.Context, cp *client.Client, campaign *pb.Campaign, only string) error {
	id, l := campaign.GetSpec().GetCampaignId(), campaign.GetLottery()
	t := render.Table{Columns: render.Columns("SKU", "VERDICT", "#ENTRANTS", "#WINNERS", "DETAIL")}
	var failed error
	for _, d := range l.GetDraws() {
		if only != "" && only != d.GetSkuId() {
			continue
		}
		_, err := evidence.Verify(claim(id, l, d), func(object string) ([]byte, error) {
			part, err := call(ctx, c, cp.Campaigns.GetLotteryEvidence, &pb.GetLotteryEvidenceRequest{CampaignId: id, SkuId: d.GetSkuId(), Object: object})
			return part.GetContent(), err
		})
		row := []string{d.GetSkuId(), "OK", number(d.GetEntrants()), count(d.GetWinners()), ""}
		switch {
		case errors.Is(err, evidence.ErrEvidence):
			row[1], row[4] = "BROKEN", err.Error()
			failed = errors.Join(failed, fmt.Errorf("%s: %w: %w", d.GetSkuId(), errFaulty, err))
		case err != nil:
			return fmt.Errorf("evidence of %s: %w", d.GetSkuId(), err)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) == 0 {
		return fmt.Errorf("%w: nothing of %s was drawn", errNotYet, id)
	}
	return errors.Join(c.show(render.View{Message: l, Tables: []render.Table{t}}), failed)
}

// claim is what the campaign's record says of a draw.
func claim(campaign string, l *pb.Lottery, d *pb.LotteryDraw) evidence.Claim {
	return evidence.Claim{
		Campaign: campaign, SKU: d.GetSkuId(), Commitment: l.GetCommitment(), Seed: l.GetSeed(), Beacon: d.GetBeacon(), EntrantsSHA256: d.GetEntrantsSha256(),
		DocumentSHA256: d.GetEvidenceSha256(), Units: int64(d.GetUnits()), Entrants: d.GetEntrants(), Winners: int64(d.GetWinners()),
	}
}
