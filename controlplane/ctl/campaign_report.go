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

func (c *cli) campaignReport() *cobra.Command {
	return &cobra.Command{
		Use: "report CAMPAIGN", Short: "Show a campaign's whole account, live or from the archive", Args: takes("CAMPAIGN"),
		Long: "Per SKU: sale_limit = confirmed + unsold units by cause; per cell the stock row, requests by outcome,\n" +
			"orders by state, refunds, findings and repairs, with money. Until the account is taken for settling it\n" +
			"is counted from the shards, then read from the archive. Exit 7: sums do not hold; 6: a cell was not read\n" +
			"(its part is unknown, not zero).\n\n" +
			"-o csv has one line per SKU, cell and figure, for spreadsheets.",
		Example: "  cellctl campaign report double-eleven\n  cellctl campaign report double-eleven -o csv > report.csv\n  cellctl campaign report double-eleven -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Reports.GetCampaignReport, &pb.GetCampaignReportRequest{CampaignId: args[0]})
				if err != nil {
					return fmt.Errorf("report of %s: %w", args[0], err)
				}
				if err := c.show(reportView(out)); err != nil {
					return err
				}
				switch out.GetCheck().GetVerdict() {
				case pb.Verdict_VERDICT_BROKEN:
					return fmt.Errorf("%d sums of %s: %w", len(out.GetBreaches()), args[0], errBroken)
				case pb.Verdict_VERDICT_UNCHECKED:
					return fmt.Errorf("report of %s: %d cells: %w", args[0], len(out.GetUnchecked()), errUnchecked)
				default:
					return nil
				}
			})
		},
	}
}

// reportView shows the report; its main table is every figure, one per line.
func reportView(out *pb.GetCampaignReportResponse) render.View {
	v := render.View{Message: out, Lines: reportHead(out)}
	for _, b := range out.GetBreaches() {
		v.Lines = append(v.Lines, strings.TrimSpace("does not add up: "+b.GetSkuId()+" "+b.GetCellId())+": "+b.GetDetail())
	}
	for _, u := range out.GetUnchecked() {
		v.Lines = append(v.Lines, u.GetWhat()+" was not read, its figures are unknown: "+u.GetWhy())
	}
	skus := render.Table{Title: "SKUS", Columns: render.Columns("SKU", "#LIMIT", "#CONFIRMED", "#UNSOLD")}
	cells := render.Table{Title: "CELLS", Columns: render.Columns("SKU", "CELL", "#ALLOCATED", "#GRANTED", "#AVAILABLE", "#RESERVED", "#CONFIRMED", "#RELEASED", "+#WRITTEN OFF", "+#ENTRIES")}
	figures := render.Table{Title: "FIGURES", Columns: render.Columns("SKU", "CELL", "WHAT", "WORD", "DETAIL", "#COUNT", "#UNITS", "#AMOUNT", "CURRENCY")}
	for _, sku := range out.GetSkus() {
		skus.Rows = append(skus.Rows, []string{sku.GetSkuId(), count(sku.GetSaleLimit()), count(sku.GetConfirmed()), count(sku.GetSaleLimit() - sku.GetConfirmed())})
		figures.Rows = append(figures.Rows, unitRow(sku.GetSkuId(), "", "limit", "SALE_LIMIT", sku.GetSaleLimit()), unitRow(sku.GetSkuId(), "", "sold", "CONFIRMED", sku.GetConfirmed()))
		for _, u := range sku.GetCells() {
			figures.Rows = append(figures.Rows, unitRow(sku.GetSkuId(), u.GetCellId(), "unsold", render.Word(u.GetCause()), u.GetUnits()))
		}
	}
	for _, cell := range out.GetCells() {
		cells.Rows = append(cells.Rows, []string{
			cell.GetSkuId(), cell.GetCellId(), count(cell.GetAllocated()), count(cell.GetGranted()), count(cell.GetAvailable()), count(cell.GetReserved()),
			count(cell.GetConfirmed()), count64(cell.GetReleased()), count(cell.GetWrittenOff()), count64(cell.GetEntries()),
		})
		figures.Rows = append(figures.Rows, unitRow(cell.GetSkuId(), cell.GetCellId(), "sold", "CONFIRMED", cell.GetConfirmed()))
		figures.Rows = append(figures.Rows, countRows(cell.GetSkuId(), cell.GetCellId(), cell.GetCounts())...)
	}
	v.Tables = []render.Table{skus, cells, figures}
	return v
}

func reportHead(out *pb.GetCampaignReportResponse) []string {
	from := "counted from the shards at " + render.Instant(out.GetTakenAt())
	if a := out.GetArchived(); a != nil {
		from = fmt.Sprintf("as archived at %s in %s, sha256 %s", render.Instant(out.GetTakenAt()), a.GetName(), a.GetSha256())
	}
	lines := []string{fmt.Sprintf("%s is %s: %s", out.GetCampaignId(), render.Word(out.GetState()), from)}
	if op := out.GetCancelledByOperation(); op != "" {
		lines = append(lines, "cancelled by operation "+op)
	}
	return append(lines, fmt.Sprintf("%s %s: %s", out.GetCheck().GetInvariant(), render.Word(out.GetCheck().GetVerdict()), out.GetCheck().GetDetail()))
}

func unitRow(sku, cell, what, word string, units int32) []string {
	return []string{sku, cell, what, word, "", "", count(units), "", ""}
}

// countRows are one cell's counts, a line each; a currency has lines of its own.
func countRows(sku, cell string, c *pb.ReportCounts) (rows [][]string) {
	for _, r := range c.GetRequests() {
		rows = append(rows, []string{sku, cell, "requests", r.GetOutcome(), r.GetReason(), count64(r.GetRequests()), count64(r.GetUnits()), "", ""})
	}
	for _, o := range c.GetOrders() {
		rows = append(rows, []string{sku, cell, "orders", render.Word(o.GetState()), "", count64(o.GetOrders()), count64(o.GetUnits()), o.GetAmount().GetAmount(), o.GetAmount().GetCurrency()})
	}
	for _, f := range c.GetRefunds() {
		detail := f.GetCause()
		if n := f.GetRestocked(); n > 0 {
			detail += fmt.Sprintf(" (%d restocked)", n)
		}
		rows = append(rows, []string{sku, cell, "refunds", f.GetState(), detail, count64(f.GetRefunds()), "", f.GetAmount().GetAmount(), f.GetAmount().GetCurrency()})
	}
	for _, f := range c.GetFindings() {
		rows = append(rows, []string{sku, cell, "findings", f.GetState(), strings.TrimSpace(f.GetKind() + " " + f.GetAction()), count64(f.GetFindings()), count64(f.GetUnits()), "", ""})
	}
	if n := c.GetReversals(); n > 0 {
		rows = append(rows, []string{sku, cell, "repairs", "REVERSAL", "ledger entries", count64(n), "", "", ""})
	}
	return rows
}

func count64(n int64) string { return strconv.FormatInt(n, 10) }
