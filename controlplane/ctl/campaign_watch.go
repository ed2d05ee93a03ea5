package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// joinShown is the command's error, or that of showing.
func joinShown(shown, err error) error { return errors.Join(err, shown) }

func (c *cli) campaignWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch CAMPAIGN", Short: "Follow a campaign: state, books, gates; ends when it is settled", Args: takes("CAMPAIGN"),
		Long:    "On a terminal the page is drawn anew; elsewhere a line is written at each change, with -o json one\nJSON document a line. --timeout bounds one look, not the watch. A control plane that is away is\nsaid on stderr and waited for, once the campaign was seen.",
		Example: "  cellctl campaign watch double-eleven\n  cellctl campaign watch double-eleven -o json > sale.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, last, said, looks := cmd.Context(), "", "", 0
			for {
				settled := false
				err := c.speak(ctx, target.Viewer, func(ctx context.Context, cp *client.Client) error {
					seen, err := c.see(ctx, cp, args[0])
					if err != nil {
						return err
					}
					settled = seen.campaign.GetState() == pb.CampaignState_CAMPAIGN_STATE_SETTLED
					looks++
					last, err = c.draw(seen, last)
					return err
				})
				if looks > 0 && away(ctx, err) { // a fail-over is no end of a sale
					if text := err.Error(); text != said {
						fmt.Fprintln(c.Err, "no answer, still watching:", text)
						said = text
					}
					err = nil
				}
				if err == nil && !settled {
					err = c.Clock.Sleep(ctx, waitEvery)
				}
				if err != nil || settled {
					return err
				}
			}
		},
	}
}

// away tells whether a look failed because nobody could answer just now.
func away(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, rpcstatus.ErrUnavailable) || errors.Is(err, rpcstatus.ErrDeadline) || errors.Is(err, context.DeadlineExceeded))
}

// sight is one look at a campaign.
type sight struct {
	campaign *pb.Campaign
	books    []*pb.Book
	gates    []gateWord
}

// gateWord is what the processes of one cell say of one SKU's gate; "?" for a cell that does not answer.
type gateWord struct{ cell, sku, state string }

func (c *cli) see(ctx context.Context, cp *client.Client, id string) (sight, error) {
	out, err := call(ctx, c, cp.Campaigns.GetCampaign, &pb.GetCampaignRequest{CampaignId: id})
	if err != nil {
		return sight{}, fmt.Errorf("watch %s: %w", id, err)
	}
	seen := sight{campaign: out.GetCampaign()}
	if books, err := cp.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: id}); err == nil {
		seen.books = books.GetBooks()
	}
	var cells []*pb.Cell
	for _, id := range seen.campaign.GetSpec().GetCells() {
		cells = append(cells, &pb.Cell{Spec: &pb.CellSpec{CellId: id}, Instances: []*pb.Instance{{}}})
	}
	for _, g := range askGates(ctx, cp, cells) {
		seen.gates = append(seen.gates, gateWords(g, id)...)
	}
	return seen, nil
}

func gateWords(g cellGates, campaign string) []gateWord {
	if g.err != nil {
		return []gateWord{{g.cell, "", "?"}}
	}
	var out []gateWord
	for _, p := range g.out.GetProcesses() {
		for _, gate := range p.GetGates() {
			word := gateWord{g.cell, gate.GetSkuId(), render.Word(gate.GetState())}
			if gate.GetCampaignId() == campaign && !slices.Contains(out, word) {
				out = append(out, word)
			}
		}
	}
	return out
}

// draw shows a look in the shape that is wanted; last is what was written before, so that only changes are
// written where nobody sits.
func (c *cli) draw(seen sight, last string) (string, error) {
	switch {
	case c.format == render.FormatJSON:
		line := jsontext.Value(render.JSON(&pb.GetCampaignResponse{Campaign: seen.campaign}))
		if err := line.Compact(); err != nil {
			return last, err
		}
		return c.line(string(line), last)
	case !c.Terminal || c.format != render.FormatTable:
		return c.line(seen.line(), last)
	}
	fmt.Fprint(c.Out, "\x1b[H\x1b[2J") // from the top of a clean screen
	v := campaignView(&pb.GetCampaignResponse{Campaign: seen.campaign}, seen.campaign)
	v.Tables = append(v.Tables, seen.bookTable(), seen.gateTable())
	return "", c.show(v)
}

func (c *cli) line(text, last string) (string, error) {
	if text == last {
		return last, nil
	}
	_, err := fmt.Fprintln(c.Out, text)
	return text, err
}

// line is a look for a log: state, version, and per SKU reserve and allocated units.
func (s sight) line() string {
	text := fmt.Sprintf("%s %s version=%d", s.campaign.GetSpec().GetCampaignId(), render.Word(s.campaign.GetState()), s.campaign.GetVersion())
	for _, b := range s.books {
		text += fmt.Sprintf(" %s:limit=%d,reserve=%d,allocated=%d", b.GetSkuId(), b.GetSaleLimit(), b.GetReserve(), b.GetSaleLimit()-b.GetReserve())
	}
	for _, g := range s.gates {
		text += fmt.Sprintf(" gate:%s/%s=%s", g.cell, g.sku, g.state)
	}
	for _, b := range s.campaign.GetBlockedBy() {
		text += fmt.Sprintf(" blocked_by=%q", b)
	}
	return text
}

func (s sight) bookTable() render.Table {
	t := render.Table{Title: "BOOKS", Columns: render.Columns("SKU", "CELL", "#GRANTED", "STATE", "#LIMIT", "#RESERVE")}
	for _, b := range s.books {
		for _, a := range b.GetAllocations() {
			t.Rows = append(t.Rows, []string{b.GetSkuId(), a.GetCellId(), count(a.GetGranted()), render.Word(a.GetState()), count(b.GetSaleLimit()), count(b.GetReserve())})
		}
	}
	return t
}

func (s sight) gateTable() render.Table {
	t := render.Table{Title: "GATES", Columns: render.Columns("CELL", "SKU", "GATE")}
	for _, g := range s.gates {
		t.Rows = append(t.Rows, []string{g.cell, g.sku, g.state})
	}
	return t
}
