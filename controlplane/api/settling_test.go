package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestCancelOfACampaign: what a dry run counts, every fault at once, and that the call itself stops nothing:
// it begins an operation that waits for a second person.
func TestCancelOfACampaign(t *testing.T) {
	p := newPlant(t)
	ctx, manager := testkit.Deadline(t), p.as(access.CampaignManager)
	for _, user := range []string{"a", "b", "c"} {
		p.exec("cell-1", "SELECT sale.sell(1, 's', $1)", user)
	}
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'a')")
	p.exec("cell-1", "INSERT INTO cellquota.payments SELECT order_id, 'p', 10, 'CNY', 'SUCCEEDED', NULL, now(), now() FROM cellquota.orders WHERE state = 'PAID'")
	cancel := func(change func(*pb.CancelCampaignRequest)) (*pb.CancelCampaignResponse, error) {
		in := &pb.CancelCampaignRequest{CampaignId: "c", OperationId: "x1", Reason: "recalled", RefundAll: true}
		if change != nil {
			change(in)
		}
		return manager.Campaigns.CancelCampaign(ctx, in)
	}
	_, err := manager.Campaigns.CancelCampaign(ctx, &pb.CancelCampaignRequest{CampaignId: "C", ExpectedVersion: -1})
	if got := strings.Join(violated(err), " "); got != "campaign_id operation_id expected_version reason refund_all" {
		t.Errorf("every fault at once: %s", got)
	}
	dry, err := cancel(func(in *pb.CancelCampaignRequest) { in.ValidateOnly = true })
	if err != nil || dry.GetUnpaidOrders() != 2 || dry.GetPaidOrders() != 1 || dry.GetOperation() != nil {
		t.Errorf("validate only: %v, %v", dry, err)
	}
	if _, err := cancel(func(in *pb.CancelCampaignRequest) { in.ExpectedVersion = 1 }); rpcstatus.Reason(err) != "VERSION_CONFLICT" {
		t.Errorf("an old version: %v", err)
	}
	if _, err := p.as(access.Viewer).Campaigns.CancelCampaign(ctx, &pb.CancelCampaignRequest{CampaignId: "c", OperationId: "x1", Reason: "no", RefundAll: true}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
	first, err := cancel(nil)
	op := first.GetOperation()
	if err != nil || op.GetKind() != core.OperationCancel || op.GetState() != pb.OperationState_OPERATION_STATE_PENDING || op.GetOperationId() != "x1" {
		t.Fatalf("%v, %v", first, err)
	}
	if again, err := cancel(nil); err != nil || again.GetOperation().GetOperationId() != "x1" {
		t.Errorf("the same call again: %v, %v", again, err)
	}
	if _, err := cancel(func(in *pb.CancelCampaignRequest) { in.CampaignId = "d" }); status.Code(err) != codes.Aborted || rpcstatus.Reason(err) != "ID_REUSED" {
		t.Errorf("the id for another campaign: %v", err)
	}
	if _, err := cancel(func(in *pb.CancelCampaignRequest) { in.CampaignId, in.OperationId = "d", "x2" }); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown campaign: %v", err)
	}
	p.caughtUp()
	if a, found := p.view.Snapshot().Approval("x1"); !found || a.State != core.ApprovalPending || a.Requester != "campaign-manager-ann" || a.Reason != "recalled" {
		t.Errorf("the approval: %+v, %v", a, found)
	}
	if c, _ := p.view.Snapshot().Campaign("c"); c.State != core.CampaignPublished || c.Cancelled() {
		t.Errorf("stopped before a second person approved: %+v", c)
	}
}

// TestUndersell: the account over the wire, per SKU and per cell; a silent shard is named. What a cancelling
// would do is not counted without it.
func TestUndersell(t *testing.T) {
	p := newPlant(t)
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'a')")
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'a')")
	p.unreachable("cell-2")
	got, err := viewer.Reports.GetUndersell(ctx, &pb.GetUndersellRequest{CampaignId: "c"})
	if err != nil || len(got.GetSkus()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	sku := got.GetSkus()[0]
	if sku.GetSkuId() != "s" || sku.GetSaleLimit() != 100 || sku.GetConfirmed() != 1 || got.GetUnreachable()["cell-2"] == "" || len(got.GetUnreachable()) != 1 {
		t.Errorf("%v", got)
	}
	words := func(units []*pb.CauseUnits) (out []string) {
		for _, u := range units {
			out = append(out, fmt.Sprintf("%s %s %d", strings.TrimPrefix(u.GetCause().String(), "UNDERSELL_CAUSE_"), u.GetCellId(), u.GetUnits()))
		}
		return out
	}
	if cells := words(sku.GetCells()); !slices.Equal(cells, []string{"UNALLOCATED  20", "LEFT_IN_CELL cell-1 39", "FROZEN cell-2 40"}) {
		t.Errorf("cells: %q", cells)
	}
	if causes := words(sku.GetCauses()); !slices.Equal(causes, []string{"UNALLOCATED  20", "LEFT_IN_CELL  39", "FROZEN  40"}) {
		t.Errorf("causes: %q", causes)
	}
	_, err = p.as(access.CampaignManager).Campaigns.CancelCampaign(ctx, &pb.CancelCampaignRequest{CampaignId: "c", OperationId: "x", Reason: "recalled", RefundAll: true, ValidateOnly: true})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "cell-2") {
		t.Errorf("a count that misses a cell: %v", err)
	}
	if _, err := viewer.Reports.GetUndersell(ctx, &pb.GetUndersellRequest{CampaignId: "d"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown campaign: %v", err)
	}
	if _, err := viewer.Reports.GetUndersell(ctx, &pb.GetUndersellRequest{}); !slices.Equal(violated(err), []string{"campaign_id"}) {
		t.Errorf("no campaign: %v", err)
	}
}

// TestCampaignReport: the account over the wire with what each shard counts; a silent shard's part is unknown
// and named, never zero.
func TestCampaignReport(t *testing.T) {
	p := newPlant(t)
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'a')")
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'a')")
	ask := func() *pb.GetCampaignReportResponse {
		t.Helper()
		out, err := viewer.Reports.GetCampaignReport(ctx, &pb.GetCampaignReportRequest{CampaignId: "c"})
		if err != nil || len(out.GetSkus()) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
		return out
	}
	got := ask()
	sku, cell := got.GetSkus()[0], got.GetCells()[0]
	if got.GetCheck().GetVerdict() != pb.Verdict_VERDICT_OK || got.GetState() != pb.CampaignState_CAMPAIGN_STATE_OPEN || got.GetArchived() != nil || len(got.GetCells()) != 2 {
		t.Errorf("%v", got)
	}
	if sku.GetSaleLimit() != 100 || sku.GetConfirmed() != 1 || cell.GetCellId() != "cell-1" || cell.GetAllocated() != 40 || cell.GetAvailable() != 39 || cell.GetConfirmed() != 1 {
		t.Errorf("%v, %v", sku, cell)
	}
	counts := sku.GetCounts()
	if len(counts.GetOrders()) != 1 || counts.GetOrders()[0].GetState() != pb.OrderState_ORDER_STATE_PAID || counts.GetOrders()[0].GetAmount().GetCurrency() != "CNY" || counts.GetRequests()[0].GetOutcome() != "ORDERED" {
		t.Errorf("%v", counts)
	}
	p.exec("cell-1", "UPDATE cellquota.stock SET confirmed = confirmed - 1, available = available + 1")
	if got := ask(); got.GetCheck().GetVerdict() != pb.Verdict_VERDICT_BROKEN || got.GetBreaches()[0].GetCellId() != "cell-1" || got.GetBreaches()[0].GetInvariant() != "I10" {
		t.Errorf("a stock row that was overwritten: %v", got)
	}
	p.exec("cell-1", "UPDATE cellquota.stock SET confirmed = confirmed + 1, available = available - 1")
	p.unreachable("cell-2")
	silent := ask()
	if silent.GetCheck().GetVerdict() != pb.Verdict_VERDICT_UNCHECKED || len(silent.GetCells()) != 1 || len(silent.GetUnchecked()) != 1 || silent.GetUnchecked()[0].GetWhat() != "cell cell-2" {
		t.Errorf("%v", silent)
	}
	if _, err := viewer.Reports.GetCampaignReport(ctx, &pb.GetCampaignReportRequest{CampaignId: "d"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown campaign: %v", err)
	}
	if _, err := viewer.Reports.GetCampaignReport(ctx, &pb.GetCampaignReportRequest{}); !slices.Equal(violated(err), []string{"campaign_id"}) {
		t.Errorf("no campaign: %v", err)
	}
}

// TestHistoryAcrossTheArchive: the history is the same, page by page, before the journal is archived, while it
// is in etcd and in the archive, and when etcd has none of it; and a closed campaign says what it waits for.
func TestHistoryAcrossTheArchive(t *testing.T) {
	p := newPlant(t)
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	q := quantity.Must
	p.write(func(tx *store.Tx) error {
		c, _, e1 := tx.Campaign("c")
		_, _, e2 := tx.Stock("s")
		c.State = core.CampaignClosed
		return errors.Join(e1, e2, tx.PutCampaign(c), tx.PutStock(core.PhysicalStock{SKU: "s", Units: q(100), Version: 1, Limits: map[ids.CampaignID]quantity.Quantity{"c": q(100)}}))
	})
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'a')")
	p.caughtUp()
	got, err := viewer.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: "c"})
	if by := got.GetCampaign().GetBlockedBy(); err != nil || !slices.Equal(by, []string{"cell cell-1: 1 reservations are RESERVED"}) {
		t.Errorf("blocked by %q, %v", by, err)
	}
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'a')")

	history := func() (out []string) {
		t.Helper()
		in := &pb.ListAdjustmentsRequest{CampaignId: "c", PageSize: 1}
		for {
			page, err := viewer.Quota.ListAdjustments(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.GetAdjustments() {
				out = append(out, a.GetAdjustmentId())
			}
			if in.PageToken = page.GetNextPageToken(); in.PageToken == "" {
				return out
			}
		}
	}
	want, both := history(), false
	if len(want) != 2 {
		t.Fatalf("history %q", want)
	}
	for range 10 {
		p.settling.Tick(ctx, p.leader)
		p.caughtUp()
		s := p.view.Snapshot()
		c, _ := s.Campaign("c")
		records := len(s.Records("c", 0, 10))
		both = both || c.State == core.CampaignSettled && records > 0
		if now := history(); !slices.Equal(now, want) {
			t.Fatalf("%s, %d records in etcd: history %q, before %q", c.State, records, now, want)
		}
		if c.State == core.CampaignSettled && records == 0 {
			if !both {
				t.Error("never in etcd and in the archive at once: nothing was merged")
			}
			p.unreachable("cell-1")
			kept, err := viewer.Reports.GetCampaignReport(ctx, &pb.GetCampaignReportRequest{CampaignId: "c"})
			if err != nil || kept.GetArchived().GetName() == "" || len(kept.GetArchived().GetSha256()) != 64 || kept.GetCheck().GetVerdict() != pb.Verdict_VERDICT_OK || kept.GetSkus()[0].GetConfirmed() != 1 {
				t.Errorf("the report after settling, the shard gone: %v, %v", kept, err)
			}
			return
		}
	}
	t.Error("the journal was never archived and pruned")
}
