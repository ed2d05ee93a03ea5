package ctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) routeHandover() *cobra.Command {
	var m mutation
	var in pb.HandOverBucketsRequest
	var buckets string
	var noWait bool
	cmd := &cobra.Command{
		Use: "handover CAMPAIGN --from CELL --to CELL --buckets A-B", Short: "Give a cell's customers, by bucket, to another cell", Args: takes("CAMPAIGN"),
		Long: "Moves those buckets of the range that --from owns, with everybody who bought there: who has an order\n" +
			"stays at one. The giver may be alive or fenced; while its shard does not answer the operation waits,\n" +
			"for without its buyers nobody may sell to them. It can be aborted (op abort) until the order step is\n" +
			"done; then it goes forward only. Units follow: by policy, or with `quota transfer` and `quota top-up`.",
		Example: "  cellctl route handover double-eleven --from cell-1 --to cell-5 --buckets 0-511 --dry-run\n" +
			"  cellctl route handover double-eleven --from cell-2 --to cell-3 --buckets 0-4095 --reason 'cell-2 is fenced'\n" +
			"  cellctl route handover double-eleven --from east-1 --to east-2 --buckets 0-2047 --domain east",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.BucketFrom, in.BucketTo, err = bucketsOf(buckets); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in.CampaignId, in.ValidateOnly, in.ExpectedRouteVersion, in.Reason = args[0], m.dryRun, m.version, m.why(cmd)
				if err := c.confirmHandover(ctx, cp, &in); err != nil {
					return err
				}
				if err := m.begin(c); err != nil {
					return err
				}
				in.OperationId = m.operationID
				out, err := call(ctx, c, cp.Routing.HandOverBuckets, &in)
				if err != nil {
					return fmt.Errorf("hand over %s of %s from %s to %s: %w", buckets, args[0], in.GetFromCellId(), in.GetToCellId(), err)
				}
				err = c.follow(ctx, cp, &out.Operation, noWait || m.dryRun)
				return errors.Join(c.show(handoverView(out, in.GetFromCellId(), in.GetToCellId())), err)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.FromCellId, "from", "", "cell that gives")
	f.StringVar(&in.ToCellId, "to", "", "cell that takes")
	f.StringVar(&buckets, "buckets", "", "first and last bucket, as 0-2047")
	f.StringVar(&in.Domain, "domain", "", "traffic domain (routing HOME_REGION: the home region)")
	for _, flag := range []string{"from", "to", "buckets"} {
		required(cmd, flag)
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	m.versionFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// bucketsOf reads "A-B", or "A" for one bucket.
func bucketsOf(text string) (from, to int32, err error) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil {
		return 0, 0, usage("--buckets %q: must be two buckets, as 0-2047", text)
	}
	return int32(a), int32(b), nil
}

// confirmHandover tells a person whom it moves before it asks.
func (c *cli) confirmHandover(ctx context.Context, cp *client.Client, in *pb.HandOverBucketsRequest) error {
	if c.yes || !c.Terminal || in.GetValidateOnly() {
		return nil
	}
	preview, err := call(ctx, c, cp.Routing.HandOverBuckets, &pb.HandOverBucketsRequest{
		CampaignId: in.GetCampaignId(), Domain: in.GetDomain(), FromCellId: in.GetFromCellId(), ToCellId: in.GetToCellId(),
		BucketFrom: in.GetBucketFrom(), BucketTo: in.GetBucketTo(), Reason: in.GetReason(), ExpectedRouteVersion: in.GetExpectedRouteVersion(), ValidateOnly: true,
	})
	if err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	return c.confirm(fmt.Sprintf("Give %d buckets (%s) of %s to %s? It moves %s.", preview.GetBucketCount(), spans(preview.GetBuckets().GetRanges()),
		in.GetFromCellId(), in.GetToCellId(), buyersOf(preview)))
}

// buyersOf says whom a handover brings; a shard that does not answer is said so.
func buyersOf(out *pb.HandOverBucketsResponse) string {
	if out.Buyers == nil {
		return "buyers that are not known now: the shard does not answer"
	}
	return number(out.GetBuyers()) + " orders' buyers"
}

func handoverView(out *pb.HandOverBucketsResponse, from, to string) render.View {
	v := render.View{Message: out}
	if op := out.GetOperation(); op != nil {
		steps := stepTable(op)
		steps.Title = "STEPS"
		v.Tables = append(v.Tables, steps, opTable(op))
	}
	buyers := ""
	if out.Buyers != nil {
		buyers = number(out.GetBuyers())
	}
	t := render.Table{
		Title: "BUCKETS", Columns: render.Columns("FROM", "TO", "#BUCKETS", "#BUYERS", "#ROUTE VERSION", "RANGES"),
		Rows: [][]string{{from, to, count(out.GetBucketCount()), buyers, number(out.GetRouteVersion()), spans(out.GetBuckets().GetRanges())}},
	}
	v.Tables = append([]render.Table{t}, v.Tables...)
	return v
}

// spans gives ranges as "0-99 200-299".
func spans(ranges []*pb.BucketRange) string {
	var out []string
	for _, r := range ranges {
		out = append(out, fmt.Sprintf("%d-%d", r.GetBucketFrom(), r.GetBucketTo()))
	}
	return strings.Join(out, " ")
}

func (c *cli) routeShow() *cobra.Command {
	return &cobra.Command{
		Use: "show CAMPAIGN", Short: "Show which cell is home to which buckets, and the handovers", Args: takes("CAMPAIGN"),
		Example: "  cellctl route show double-eleven\n  cellctl route show double-eleven -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Routing.GetRoute, &pb.GetRouteRequest{CampaignId: args[0]})
				if err != nil {
					return fmt.Errorf("route of %s: %w", args[0], err)
				}
				return c.show(routeView(out))
			})
		},
	}
}

func routeView(out *pb.GetRouteResponse) render.View {
	homes := render.Table{Title: "HOMES", Columns: render.Columns("DOMAIN", "CELL", "#BUCKETS", "RANGES")}
	moves := render.Table{Title: "HANDOVERS", Columns: render.Columns("DOMAIN", "#ROUTE VERSION", "FROM", "TO", "STATE", "ORDERED", "#BUCKETS", "RANGES")}
	for _, d := range out.GetDomains() {
		for _, cell := range d.GetCells() {
			homes.Rows = append(homes.Rows, []string{d.GetDomain(), cell.GetCellId(), size(cell.GetBuckets()), spans(cell.GetBuckets().GetRanges())})
		}
		for _, m := range d.GetMoves() {
			moves.Rows = append(moves.Rows, []string{
				d.GetDomain(), number(m.GetRouteVersion()), m.GetFromCell(), m.GetToCell(), render.Word(m.GetState()),
				render.InstantOf(time.UnixMilli(m.GetOrderedAtMs())), size(m.GetBuckets()), spans(m.GetBuckets().GetRanges()),
			})
		}
	}
	v := render.View{Message: out, Tables: []render.Table{homes}}
	if len(moves.Rows) > 0 {
		v.Tables = append(v.Tables, moves)
	}
	return v
}

func size(b *pb.DomainBuckets) string {
	var n int32
	for _, r := range b.GetRanges() {
		n += r.GetBucketTo() - r.GetBucketFrom() + 1
	}
	return count(n)
}
