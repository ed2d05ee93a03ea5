package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) recoverCommand() *cobra.Command {
	return group("recover", "Bring the control plane back after etcd lost its past", "  cellctl recover store --dry-run", c.recoverStore())
}

func (c *cli) recoverStore() *cobra.Command {
	var m mutation
	var limits []string
	var noWait bool
	cmd := &cobra.Command{
		Use: "store", Short: "Take the books from the shards, under limits that you confirm", Args: takes(),
		Long: "When etcd was restored from a backup or rebuilt, the shards know of grants that its books do not\n" +
			"have: status says RESTORED and nothing is granted. --dry-run shows what every SKU would be set to,\n" +
			"and the least limit that it can have. Then confirm each SKU's limit; a second person approves the\n" +
			"operation, and it takes cells, campaigns and allocations from the shards.",
		Example: "  cellctl recover store --dry-run\n" +
			"  cellctl recover store --limit double-eleven/phone-x=10000 --reason 'etcd restored from the 03:00 backup'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := &pb.RecoverStoreRequest{ValidateOnly: m.dryRun}
			for _, text := range limits {
				l, err := confirmedLimit(text)
				if err != nil {
					return err
				}
				in.Limits = append(in.Limits, l)
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				if in.OperationId, in.Reason = m.operationID, m.why(cmd); !m.dryRun {
					if err := c.confirm(fmt.Sprintf("Take the books of %d SKUs from the shards?", len(in.GetLimits()))); err != nil {
						return err
					}
				}
				out, err := call(ctx, c, cp.Recovery.RecoverStore, in)
				if err != nil {
					return fmt.Errorf("recover the store: %w", err)
				}
				if m.dryRun {
					return c.show(recoveryView(out))
				}
				err = c.follow(ctx, cp, &out.Operation, noWait)
				return c.showMoved(out, out.GetOperation(), "", nil, err)
			})
		},
	}
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "CAMPAIGN/SKU=UNITS: how many may be sold in all; once for each SKU")
	m.flags(cmd)
	m.reasonFlag(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

// confirmedLimit reads CAMPAIGN/SKU=UNITS.
func confirmedLimit(text string) (*pb.ConfirmedLimit, error) {
	name, digits, found := strings.Cut(text, "=")
	campaign, sku, named := strings.Cut(name, "/")
	units, err := strconv.ParseInt(digits, 10, 32)
	if !found || !named || err != nil || units < 1 {
		return nil, usage("--limit %q: must be CAMPAIGN/SKU=UNITS", text)
	}
	return &pb.ConfirmedLimit{CampaignId: campaign, SkuId: sku, SaleLimit: int32(units)}, nil
}

// recoveryView shows what a recovery would set.
func recoveryView(out *pb.RecoverStoreResponse) render.View {
	books := render.Table{Title: "BOOKS", Columns: render.Columns("CAMPAIGN", "SKU", "#STORED LIMIT", "#LIMIT", "#FLOOR", "#RESERVE", "BLOCKED BY")}
	held := render.Table{Title: "ALLOCATIONS", Columns: render.Columns("CAMPAIGN", "SKU", "CELL", "#STORED", "#GRANTED", "#NUMBER")}
	for _, b := range out.GetBooks() {
		books.Rows = append(books.Rows, []string{b.GetCampaignId(), b.GetSkuId(), count(b.GetStoredLimit()), count(b.GetSaleLimit()), count(b.GetFloor()), count(b.GetReserve()), b.GetBlockedBy()})
		for _, a := range b.GetAllocations() {
			held.Rows = append(held.Rows, []string{b.GetCampaignId(), b.GetSkuId(), a.GetCellId(), count(a.GetStored()), count(a.GetGranted()), number(a.GetLastNumber())})
		}
	}
	cells := render.Table{Title: "CELLS", Columns: render.Columns("CELL", "#STORED FENCE", "#FENCE", "STATE", "#TERM", "BLOCKED BY")}
	for _, r := range out.GetCells() {
		cells.Rows = append(cells.Rows, []string{
			r.GetCellId(), number(r.GetStoredVersion()), number(r.GetFenceVersion()),
			strings.TrimPrefix(r.GetFenceState().String(), "FENCE_STATE_"), number(r.GetTerm().GetCount()), r.GetBlockedBy(),
		})
	}
	return render.View{Message: out, Tables: []render.Table{books, held, cells}}
}
