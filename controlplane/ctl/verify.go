package ctl

import (
	"context"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/oracle"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/edge/load/history"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// verifyFlags of one verification.
type verifyFlags struct {
	campaign, history string
	watch             bool
	settle            time.Duration
}

// watchEvery is the pause between two verifications of --watch.
const watchEvery = time.Second

func (c *cli) verifyCommand() *cobra.Command {
	var v verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the invariants I1 to I10 over etcd, shards and mirrors", Args: takes(),
		Long: "Names what breaks (exit 7) and what could not be checked (exit 6). SKIPPED is what makes no sense\n" +
			"yet: I6 without a history, I9 before quiet, I10 before close and drain.\n\n" +
			"--history takes the JSON lines of `cellctl dev load --history`: it waits until every accepted request\n" +
			"has an outcome, --settle at most, and holds every answer against the shards (I4, I6, I7).",
		Example: "  cellctl verify\n  cellctl verify --campaign double-eleven -o json\n  cellctl verify --watch\n  cellctl verify --campaign demo --history load.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if v.watch && v.history != "" {
				return usage("--watch and --history do not go together: a history is judged when the sale is quiet")
			}
			if !cmd.Flags().Changed("timeout") {
				c.timeout = 2*time.Minute + v.settle
			}
			if v.watch {
				return c.watch(cmd.Context(), v)
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := c.verify(ctx, cp, v)
				if err != nil {
					return err
				}
				if err := c.show(verifyView(out)); err != nil {
					return err
				}
				return verdict(out)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.campaign, "campaign", "", "of this campaign only")
	f.BoolVar(&v.watch, "watch", false, "again every second; ends at the first breach")
	f.StringVar(&v.history, "history", "", "judge this history of `dev load` too")
	f.DurationVar(&v.settle, "settle", 30*time.Second, "with --history: longest wait for what is still queued")
	return cmd
}

// verify asks once, a history included.
func (c *cli) verify(ctx context.Context, cp *client.Client, v verifyFlags) (*pb.VerifyResponse, error) {
	var judged *history.Report
	if v.history != "" {
		resolver := oracle.New(cp.Reports)
		if _, err := oracle.Settle(ctx, records(v.history), resolver, c.Clock, v.settle); err != nil {
			return nil, fmt.Errorf("history %s: %w", v.history, err)
		}
		report, err := history.Check(ctx, records(v.history), resolver)
		if err != nil {
			return nil, fmt.Errorf("history %s: %w", v.history, err)
		}
		judged = &report
	}
	out, err := call(ctx, c, cp.Reports.Verify, &pb.VerifyRequest{CampaignId: v.campaign})
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	if judged != nil {
		oracle.Merge(out, *judged)
	}
	return out, nil
}

// records reads a history file, opened anew each time it is walked.
func records(file string) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		f, err := os.Open(file)
		if err != nil {
			yield(history.Record{}, usage("--history: %v", err))
			return
		}
		defer func() { _ = f.Close() }() // only read
		for r, err := range history.Read(f) {
			if err != nil {
				err = usage("--history %s: %v", file, err) // a damaged file judges nothing
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// watch verifies every second until something breaks or the program is interrupted.
func (c *cli) watch(ctx context.Context, v verifyFlags) error {
	for {
		err := c.speak(ctx, target.SRE, func(ctx context.Context, cp *client.Client) error {
			out, err := c.verify(ctx, cp, v)
			if err != nil {
				return err
			}
			if c.Terminal && c.format == render.FormatTable {
				fmt.Fprint(c.Out, "\x1b[H\x1b[2J") // from the top of a clean screen
			}
			if err := c.show(verifyView(out)); err != nil {
				return err
			}
			if len(out.GetBreaches()) > 0 {
				return verdict(out)
			}
			return nil
		})
		if err == nil {
			err = c.Clock.Sleep(ctx, watchEvery)
		}
		if err != nil {
			return err
		}
	}
}

// verdict is what a verification ends with: broken beats unchecked.
func verdict(out *pb.VerifyResponse) error {
	if n := len(out.GetBreaches()); n > 0 || !out.GetOk() {
		return fmt.Errorf("%d breaches: %w", n, errBroken)
	}
	if n := len(out.GetUnchecked()); n > 0 {
		return fmt.Errorf("%d things: %w", n, errUnchecked)
	}
	for _, check := range out.GetChecks() {
		if check.GetVerdict() == pb.Verdict_VERDICT_UNCHECKED {
			return fmt.Errorf("%s: %w", check.GetInvariant(), errUnchecked)
		}
	}
	return nil
}

func verifyView(out *pb.VerifyResponse) render.View {
	v := render.View{Message: out}
	if len(out.GetBreaches()) > 0 {
		t := render.Table{Title: "BREACHES", Columns: render.Columns("INVARIANT", "CAMPAIGN", "SKU", "CELL", "DETAIL")}
		for _, b := range out.GetBreaches() {
			t.Rows = append(t.Rows, []string{b.GetInvariant(), b.GetCampaignId(), b.GetSkuId(), b.GetCellId(), b.GetDetail()})
		}
		v.Tables = append(v.Tables, t)
	}
	if len(out.GetUnchecked()) > 0 {
		t := render.Table{Title: "UNCHECKED", Columns: render.Columns("INVARIANT", "WHAT", "WHY")}
		for _, u := range out.GetUnchecked() {
			t.Rows = append(t.Rows, []string{u.GetInvariant(), u.GetWhat(), u.GetWhy()})
		}
		v.Tables = append(v.Tables, t)
	}
	t := render.Table{Columns: render.Columns("INVARIANT", "VERDICT", "DETAIL")}
	for _, check := range out.GetChecks() {
		t.Rows = append(t.Rows, []string{check.GetInvariant(), render.Word(check.GetVerdict()), check.GetDetail()})
	}
	v.Tables = append(v.Tables, t)
	return v
}
