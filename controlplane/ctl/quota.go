package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) quotaCommand() *cobra.Command {
	return group("quota", "See and move units between the reserve and cells",
		"  cellctl quota list double-eleven\n  cellctl quota top-up double-eleven phone-x cell-1 200",
		c.quotaSplit(), c.quotaList(), c.quotaTopUp(), c.quotaReturn(), c.quotaTransfer(), c.quotaRebalance(), c.quotaHistory())
}

func (c *cli) quotaSplit() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "split [CAMPAIGN]", Short: "Show how units and buckets would be cut", Args: takes("[CAMPAIGN]"),
		Long:    "Cuts as a publish of now would; nothing is changed. Of a campaign on sale -o wide adds what was asked of each\ncell so far, and the policy DEMAND cuts by it; before, by the cells' weights, and a warning says so.",
		Example: "  cellctl quota split -f campaign.yaml\n  cellctl quota split double-eleven -o csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &pb.PreviewSplitRequest{}
			switch {
			case len(args) == 1 && file != "":
				return usage("give CAMPAIGN or -f, not both")
			case len(args) == 1:
				in.CampaignId = args[0]
			case file != "":
				text, err := c.readFile(file)
				if err != nil {
					return err
				}
				in.Yaml = text
			default:
				return usage("%s: needs CAMPAIGN or -f campaign.yaml", cmd.CommandPath())
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Quota.PreviewSplit, in)
				if err != nil {
					return fmt.Errorf("split: %w", err)
				}
				v := render.View{Message: out, Lines: warnings(out.GetWarnings())}
				for _, sku := range slices.Sorted(maps.Keys(out.GetReserves())) {
					v.Lines = append(v.Lines, fmt.Sprintf("reserve of %s: %d", sku, out.GetReserves()[sku]))
				}
				t := render.Table{Columns: render.Columns("SKU", "CELL", "#UNITS", "#BUCKETS", "+#DEMAND")}
				for _, r := range out.GetRows() {
					t.Rows = append(t.Rows, []string{r.GetSkuId(), r.GetCellId(), count(r.GetUnits()), count(r.GetBuckets()), number(r.GetDemand())})
				}
				v.Tables = []render.Table{t}
				return c.show(v)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "campaign.yaml; - is standard input")
	return cmd
}

func (c *cli) quotaList() *cobra.Command {
	return &cobra.Command{
		Use: "list CAMPAIGN [SKU]", Short: "Show the books: limit, reserve, allocations", Args: takes("CAMPAIGN", "[SKU]"),
		Example: "  cellctl quota list double-eleven\n  cellctl quota list double-eleven phone-x -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				in := &pb.ListAllocationsRequest{CampaignId: args[0]}
				if len(args) == 2 {
					in.SkuId = args[1]
				}
				out, err := call(ctx, c, cp.Quota.ListAllocations, in)
				if err != nil {
					return fmt.Errorf("list quota of %s: %w", args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{bookTable(out.GetBooks())}})
			})
		},
	}
}

// bookTable has a row per allocation, the reserve and the limit.
func bookTable(books []*pb.Book) render.Table {
	t := render.Table{Columns: render.Columns("SKU", "WHERE", "#UNITS", "STATE", "#FENCE", "#NUMBER", "#WRITTEN OFF", "+#FIRST GRANT", "+#LIMIT TARGET", "+FINAL", "+CAMPAIGN", "+#VERSION")}
	for _, b := range books {
		row := func(where string, units int32, more ...string) {
			line := append([]string{b.GetSkuId(), where, count(units)}, more...)
			for len(line) < len(t.Columns)-2 {
				line = append(line, "")
			}
			if where == limitRow {
				line[8], line[9] = lowered(b.GetLimitTarget()), finally(b.GetFinal())
			}
			t.Rows = append(t.Rows, append(line, b.GetCampaignId(), number(b.GetVersion())))
		}
		for _, a := range b.GetAllocations() {
			row(a.GetCellId(), a.GetGranted(), render.Word(a.GetState()), number(a.GetFenceVersion()), number(a.GetLastNumber()), count(a.GetWrittenOff()), count(a.GetFirstGrant()))
		}
		row("reserve", b.GetReserve())
		row(limitRow, b.GetSaleLimit())
	}
	return t
}

const limitRow = "sale limit"

// lowered is the limit that a lowering wants to reach, or nothing.
func lowered(n int32) string {
	if n == 0 {
		return ""
	}
	return count(n)
}

func finally(final bool) string {
	if final {
		return "FINAL_SOLD_OUT"
	}
	return ""
}

func (c *cli) quotaTopUp() *cobra.Command {
	var m mutation
	var noWait bool
	cmd := &cobra.Command{
		Use: "top-up CAMPAIGN SKU CELL N", Short: "Grant N units of the reserve to a cell", Args: takes("CAMPAIGN", "SKU", "CELL", "N"),
		Example: "  cellctl quota top-up double-eleven phone-x cell-1 200\n  cellctl quota top-up double-eleven phone-x cell-1 200 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := units(args[3])
			if err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.CampaignManager, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Quota.TopUp, &pb.TopUpRequest{
					AdjustmentId: m.operationID, CampaignId: args[0], SkuId: args[1], CellId: args[2], Units: n,
					ValidateOnly: m.dryRun, ExpectedVersion: m.version, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("top up %s of %s/%s by %d: %w", args[2], args[0], args[1], n, err)
				}
				if !noWait && !m.dryRun {
					out.Adjustment, err = c.applied(ctx, cp, out.GetAdjustment())
				}
				books := bookTable([]*pb.Book{out.GetBook()})
				books.Title = "BOOK"
				t := adjustmentTable([]*pb.Adjustment{out.GetAdjustment()})
				t.Title = "ADJUSTMENT"
				return errors.Join(c.show(render.View{Message: out, Tables: []render.Table{books, t}}), err)
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the book has moved, before the cell's shard has the units")
	return cmd
}

// applied waits until the cell's shard has decided; errPending past --timeout. The record as last seen
// is always answered.
func (c *cli) applied(ctx context.Context, cp *client.Client, a *pb.Adjustment) (*pb.Adjustment, error) {
	in := &pb.ListAdjustmentsRequest{CampaignId: a.GetCampaignId(), SkuId: a.GetSkuId(), CellId: a.GetCellId(), PageSize: 100}
	for {
		switch a.GetState() {
		case pb.JournalState_JOURNAL_STATE_DONE:
			return a, nil
		case pb.JournalState_JOURNAL_STATE_VOIDED:
			return a, fmt.Errorf("%s: %w: it was voided before the cell applied it", a.GetAdjustmentId(), errEnded)
		default: // on its way
		}
		if c.Clock.Sleep(ctx, callPause) != nil {
			if a.GetKind() == pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN {
				return a, fmt.Errorf("%s: the book has not moved, %s has not decided: %w", a.GetAdjustmentId(), a.GetCellId(), errPending)
			}
			return a, fmt.Errorf("%s: the book has moved, %s has not applied it: %w", a.GetAdjustmentId(), a.GetCellId(), errPending)
		}
		page, err := cp.Quota.ListAdjustments(ctx, in)
		if err != nil {
			continue // asked again until --timeout
		}
		for _, now := range page.GetAdjustments() {
			if now.GetAdjustmentId() == a.GetAdjustmentId() {
				a = now
			}
		}
	}
}

func (c *cli) quotaHistory() *cobra.Command {
	var cell string
	var limit int
	cmd := &cobra.Command{
		Use: "history CAMPAIGN [SKU]", Short: "Show the journal, newest first", Args: takes("CAMPAIGN", "[SKU]"),
		Example: "  cellctl quota history double-eleven\n  cellctl quota history double-eleven phone-x --cell cell-2 -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("--limit %d: must be at least 1", limit)
			}
			in := &pb.ListAdjustmentsRequest{CampaignId: args[0], CellId: cell}
			if len(args) == 2 {
				in.SkuId = args[1]
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all := &pb.ListAdjustmentsResponse{}
				for {
					in.PageSize, in.PageToken = pageSize(limit-len(all.GetAdjustments())), all.GetNextPageToken()
					page, err := call(ctx, c, cp.Quota.ListAdjustments, in)
					if err != nil {
						return fmt.Errorf("history of %s: %w", args[0], err)
					}
					all.Adjustments, all.NextPageToken = append(all.Adjustments, page.GetAdjustments()...), page.GetNextPageToken()
					if all.GetNextPageToken() == "" || len(all.GetAdjustments()) >= limit {
						return c.show(render.View{Message: all, Tables: []render.Table{adjustmentTable(all.GetAdjustments())}})
					}
				}
			})
		},
	}
	cmd.Flags().StringVar(&cell, "cell", "", "of this cell only")
	cmd.Flags().IntVar(&limit, "limit", 1000, "at most this many")
	return cmd
}

func adjustmentTable(list []*pb.Adjustment) render.Table {
	t := render.Table{Columns: render.Columns("ADJUSTMENT", "AT", "SKU", "CELL", "KIND", "#UNITS", "STATE", "OUTCOME", "#FENCE", "#NUMBER", "+CAMPAIGN", "+EVIDENCE", "+ACTOR", "+REASON")}
	for _, a := range list {
		t.Rows = append(t.Rows, []string{
			a.GetAdjustmentId(), render.Instant(a.GetCreatedAt()), a.GetSkuId(), a.GetCellId(), render.Word(a.GetKind()), count(a.GetUnits()),
			render.Word(a.GetState()), unless(render.Word(a.GetOutcome())), number(a.GetFenceVersion()), number(a.GetNumber()),
			a.GetCampaignId(), unless(render.Word(a.GetEvidence())), a.GetActor(), a.GetReason(),
		})
	}
	return t
}

// unless leaves out what was not decided.
func unless(word string) string {
	if word == "UNSPECIFIED" {
		return ""
	}
	return word
}
