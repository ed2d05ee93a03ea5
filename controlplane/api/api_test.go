package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/api"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func violated(err error) (fields []string) {
	for _, v := range rpcstatus.Violations(err) {
		fields = append(fields, v.Field)
	}
	return fields
}

func TestEverySentinelHasItsOwnReason(t *testing.T) {
	if _, err := rpcstatus.NewTable(api.Kinds()...); err != nil {
		t.Fatal(err)
	}
}

func TestCreateCell(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	region := r.as(access.RegionOperator)
	got, err := region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(1), OperationId: "op-1"})
	if err != nil || got.GetCell().GetState() != pb.CellState_CELL_STATE_SUSPECT || got.GetCell().GetFenceVersion() != 1 || got.GetOperationId() != "op-1" {
		t.Fatalf("%v, %v", got, err) // ACTIVE without a live process reads SUSPECT
	}
	again, err := region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(1), OperationId: "op-2"})
	if err != nil || again.GetCell().GetVersion() != got.GetCell().GetVersion() || len(r.shards.installed) != 1 {
		t.Errorf("again: %v, %v, installed %v", again, err, r.shards.installed)
	}
	other := r.cell(1)
	other.Weight = 5
	if _, err := region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: other, OperationId: "op-3"}); status.Code(err) != codes.AlreadyExists || rpcstatus.Reason(err) != "CELL_EXISTS" {
		t.Errorf("another spec: %v", err)
	}
	west := r.cell(3)
	west.Region = "west"
	if _, err := region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: west, OperationId: "op-4"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another region: %v", err)
	}
	shared := r.cell(4)
	shared.Kafka.Topic, shared.Shard.FencerDsnFile = r.cell(1).Kafka.Topic, "fencer-1"
	_, err = region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: shared, OperationId: "op-5"})
	if fields := violated(err); status.Code(err) != codes.InvalidArgument || len(fields) != 2 {
		t.Errorf("a shared topic and shard: %v", err)
	}
	bad := r.cell(5)
	bad.Weight, bad.Region, bad.Redis.Addrs = -1, "EAST", nil
	_, err = region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: bad})
	if fields := strings.Join(violated(err), " "); fields != "operation_id spec.region spec.weight spec.redis.addrs" {
		t.Errorf("every fault at once: %s", fields)
	}
	dry, err := region.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(6), OperationId: "op-6", ValidateOnly: true})
	if err != nil || dry.GetCell().GetState() != pb.CellState_CELL_STATE_PROVISIONED {
		t.Errorf("validate only: %v, %v", dry, err)
	}
	if _, err := region.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-6"}); status.Code(err) != codes.NotFound || rpcstatus.Metadata(err)["cell_id"] != "cell-6" {
		t.Errorf("validate only left a cell: %v", err)
	}
}

// A provisioning that fails half-way goes on where it ended.
func TestCreateCellGoesOn(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	sre := r.as(access.SRE)
	r.shards.err = rpcstatus.ErrUnavailable
	if _, err := sre.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(1), OperationId: "op"}); status.Code(err) != codes.Unavailable {
		t.Fatalf("shard down: %v", err)
	}
	r.shards.err = nil
	r.shards.version = 4
	if _, err := sre.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(1), OperationId: "op"}); rpcstatus.Reason(err) != "STORE_RESTORED" {
		t.Fatalf("a shard with a past: %v", err)
	}
	r.shards.version = 1
	got, err := sre.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(1), OperationId: "op"})
	if err != nil || got.GetCell().GetState() != pb.CellState_CELL_STATE_SUSPECT {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestReadCells(t *testing.T) {
	r := newRig(t)
	r.provision(3)
	ctx := testkit.Deadline(t)
	viewer := r.as(access.Viewer)
	got, err := viewer.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"})
	if c := got.GetCell(); err != nil || c.GetLastReportAgeMs() != 250 || c.GetUnitsAtRisk() != 0 || !c.GetShardReachable() {
		t.Errorf("%v, %v", got, err)
	}
	first, err := viewer.Cells.ListCells(ctx, &pb.ListCellsRequest{PageSize: 2})
	if err != nil || len(first.GetCells()) != 2 || first.GetNextPageToken() == "" || first.GetCells()[1].GetShardDetail() != "connection refused" || first.GetCells()[1].GetLastReportAgeMs() != -1 {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := viewer.Cells.ListCells(ctx, &pb.ListCellsRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
	if err != nil || len(second.GetCells()) != 1 || second.GetNextPageToken() != "" || second.GetCells()[0].GetSpec().GetCellId() != "cell-3" {
		t.Errorf("%v, %v", second, err)
	}
	if _, err := viewer.Cells.ListCells(ctx, &pb.ListCellsRequest{PageSize: 1001, PageToken: "%%%"}); strings.Join(violated(err), " ") != "page_size page_token" {
		t.Errorf("bad page: %v", err)
	}
	if _, err := viewer.Cells.CreateCell(ctx, &pb.CreateCellRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer provisions: %v", err)
	}
	if _, err := r.as("stranger").Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := viewer.Cells.GetGate(ctx, &pb.CellAdminServiceGetGateRequest{CellId: "cell-9"}); rpcstatus.Reason(err) != "UNKNOWN_CELL" {
		t.Errorf("gate of an unknown cell: %v", err)
	}
}

// Bad campaign files: every fault, its line, nothing changed.
func TestCampaignFiles(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	good := campaignYAML("c", 2)
	bad := strings.NewReplacer("sale_limit: 10000", "sale_limit: -1", "[cell-1, cell-2]", "[cell-1, cell-7]", "refund_rule: NO_RESTOCK", "refund: NO").Replace(good)
	checked, err := manager.Campaigns.ValidateCampaign(ctx, &pb.ValidateCampaignRequest{Yaml: bad})
	if err != nil || len(checked.GetFaults()) != 4 || checked.GetSpec() != nil {
		t.Fatalf("%v, %v", checked, err)
	}
	for _, f := range checked.GetFaults() {
		if f.GetLine() == 0 && f.GetPath() != "refund_rule" {
			t.Errorf("%v has no line", f)
		}
	}
	_, err = manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: bad})
	if fields := strings.Join(violated(err), " "); status.Code(err) != codes.InvalidArgument || fields != "operation_id refund_rule refund skus[0].sale_limit cells[1]" {
		t.Errorf("create: %v (%s)", err, fields)
	}
	if _, err := manager.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: "c"}); rpcstatus.Reason(err) != "UNKNOWN_CAMPAIGN" {
		t.Errorf("a refused file left a campaign: %v", err)
	}
	over := strings.Replace(good, "close_at: 2", "close_at: 1", 1)
	over = strings.Replace(over, "open_at: 2", "open_at: 1", 1)
	if checked, err = manager.Campaigns.ValidateCampaign(ctx, &pb.ValidateCampaignRequest{Yaml: over}); err != nil || len(checked.GetFaults()) != 1 || checked.GetFaults()[0].GetPath() != "close_at" {
		t.Errorf("a window that is over: %v, %v", checked, err)
	}
	checked, err = manager.Campaigns.ValidateCampaign(ctx, &pb.ValidateCampaignRequest{Yaml: good})
	if err != nil || len(checked.GetFaults()) != 0 || checked.GetSpec().GetReservationTtl().GetSeconds() != 900 {
		t.Errorf("%v, %v", checked, err)
	}
}

func TestCampaignLife(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	yaml := campaignYAML("c", 2)
	dry, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: yaml, OperationId: "x", ValidateOnly: true})
	if err != nil || dry.GetCampaign().GetState() != pb.CampaignState_CAMPAIGN_STATE_DRAFT {
		t.Fatalf("%v, %v", dry, err)
	}
	for _, op := range []string{"create", "create", "create-2"} {
		made, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: yaml, OperationId: op})
		if err != nil || made.GetCampaign().GetVersion() != 1 || made.GetCampaign().GetOwner() != "campaign-manager-ann" {
			t.Fatalf("%v, %v", made, err)
		}
	}
	if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: strings.Replace(yaml, "reserve: 400", "reserve: 401", 1), OperationId: "other"}); rpcstatus.Reason(err) != "CAMPAIGN_EXISTS" {
		t.Errorf("other contents: %v", err)
	}
	if _, err := manager.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: "c", OperationId: "op", ExpectedVersion: 9}); rpcstatus.Reason(err) != "VERSION_CONFLICT" {
		t.Errorf("old version: %v", err)
	}
	if got, err := manager.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: "c", OperationId: "op", ValidateOnly: true}); err != nil || got.GetOperation() != nil {
		t.Errorf("validate only: %v, %v", got, err)
	}
	for range 2 {
		got, err := manager.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: "c", OperationId: "op"})
		if err != nil || got.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_PENDING || got.GetCampaign().GetState() != pb.CampaignState_CAMPAIGN_STATE_PUBLISHING {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if _, err := manager.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: "c", OperationId: "op-2"}); rpcstatus.Reason(err) != "CAMPAIGN_STATE" || rpcstatus.Metadata(err)["operation_id"] != "op" {
		t.Errorf("a second publish: %v", err)
	}
	if _, err := manager.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "close", Reason: "r"}); rpcstatus.Reason(err) != "CAMPAIGN_STATE" {
		t.Errorf("closing while publishing: %v", err)
	}
	aborted, err := manager.Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "op", Reason: "wrong price"})
	if err != nil || aborted.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_ABORTED {
		t.Fatalf("%v, %v", aborted, err)
	}
	got, err := manager.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: "c"})
	if err != nil || got.GetCampaign().GetState() != pb.CampaignState_CAMPAIGN_STATE_DRAFT {
		t.Errorf("after the abort: %v, %v", got, err)
	}
	r.book("c")
	if got, err = manager.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: "c"}); err != nil || got.GetCampaign().GetState() != pb.CampaignState_CAMPAIGN_STATE_OPEN {
		t.Errorf("a published campaign within its window: %v, %v", got, err)
	}
	if _, err := manager.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "close"}); strings.Join(violated(err), "") != "reason" {
		t.Errorf("closing without a reason: %v", err)
	}
	for range 2 {
		closed, err := manager.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "close", Reason: "over"})
		if err != nil || closed.GetCampaign().GetState() != pb.CampaignState_CAMPAIGN_STATE_CLOSED {
			t.Fatalf("%v, %v", closed, err)
		}
	}
	if list, err := manager.Campaigns.ListCampaigns(ctx, &pb.ListCampaignsRequest{}); err != nil || len(list.GetCampaigns()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestQuota(t *testing.T) {
	r := newRig(t)
	r.provision(3)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	yaml := campaignYAML("c", 2)
	preview, err := manager.Quota.PreviewSplit(ctx, &pb.PreviewSplitRequest{Yaml: yaml})
	if err != nil || len(preview.GetRows()) != 2 || preview.GetRows()[0].GetUnits() != 4_800 || preview.GetRows()[0].GetBuckets() != 2_048 || preview.GetReserves()["phone-x"] != 400 {
		t.Fatalf("%v, %v", preview, err)
	}
	if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: yaml, OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	ask := &pb.TopUpRequest{AdjustmentId: "a1", CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: 100, Reason: "low"}
	if _, err := manager.Quota.TopUp(ctx, ask); rpcstatus.Reason(err) != "CAMPAIGN_STATE" {
		t.Errorf("a top-up without a book: %v", err)
	}
	r.book("c")
	if _, err := manager.Quota.TopUp(ctx, ask); rpcstatus.Reason(err) != "CELL_STATE" || rpcstatus.Metadata(err)["state"] != "SUSPECT" {
		t.Errorf("a top-up to a cell without a process: %v", err)
	}
	r.alive()
	ask.ValidateOnly = true
	if dry, err := manager.Quota.TopUp(ctx, ask); err != nil || dry.GetBook().GetReserve() != 300 || dry.GetAdjustment().GetNumber() != 2 {
		t.Errorf("validate only: %v, %v", dry, err)
	}
	ask.ValidateOnly = false
	for range 3 {
		got, err := manager.Quota.TopUp(ctx, ask)
		if err != nil || got.GetBook().GetReserve() != 300 || got.GetAdjustment().GetNumber() != 2 || got.GetAdjustment().GetState() != pb.JournalState_JOURNAL_STATE_BOOKED || got.GetOperationId() != "a1" {
			t.Fatalf("%v, %v", got, err)
		}
	}
	other := &pb.TopUpRequest{AdjustmentId: "a1", CampaignId: "c", SkuId: "phone-x", CellId: "cell-2", Units: 100}
	if _, err := manager.Quota.TopUp(ctx, other); status.Code(err) != codes.Aborted || rpcstatus.Reason(err) != "ID_REUSED" {
		t.Errorf("another cell under the same id: %v", err)
	}
	for _, c := range []struct {
		change func(*pb.TopUpRequest)
		reason string
	}{
		{func(q *pb.TopUpRequest) { q.Units = 301 }, "RESERVE_SHORT"},
		{func(q *pb.TopUpRequest) { q.CellId = "cell-3" }, "NO_BUCKET"},
		{func(q *pb.TopUpRequest) { q.CellId = "cell-9" }, "UNKNOWN_CELL"},
		{func(q *pb.TopUpRequest) { q.ExpectedVersion = 1 }, "VERSION_CONFLICT"},
		{func(q *pb.TopUpRequest) { q.CampaignId = "nobody" }, "UNKNOWN_CAMPAIGN"},
		{func(q *pb.TopUpRequest) { q.SkuId = "other" }, "UNKNOWN_SKU"},
	} {
		q := &pb.TopUpRequest{AdjustmentId: "b", CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: 1}
		c.change(q)
		if _, err := manager.Quota.TopUp(ctx, q); rpcstatus.Reason(err) != c.reason {
			t.Errorf("%v: %v, want %s", q, err, c.reason)
		}
	}
	_, err = manager.Quota.TopUp(ctx, &pb.TopUpRequest{CampaignId: "C", Units: -1, ExpectedVersion: -1, Reason: strings.Repeat("x", 1025)})
	if fields := strings.Join(violated(err), " "); fields != "adjustment_id campaign_id sku_id cell_id units expected_version reason" {
		t.Errorf("every fault at once: %s", fields)
	}
	list, err := manager.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: "c"})
	if b := list.GetBooks(); err != nil || len(b) != 1 || b[0].GetReserve() != 300 || b[0].GetAllocations()[0].GetGranted() != 4_900 || b[0].GetAllocations()[0].GetLastNumber() != 2 || list.GetRevision() == 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := manager.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: "c", SkuId: "other"}); rpcstatus.Reason(err) != "UNKNOWN_SKU" {
		t.Errorf("allocations of another SKU: %v", err)
	}
}

// A cell that is being fenced between the check and the write gets nothing, and
// the caller is told the state.
func TestTopUpOfAFencedCell(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	r.book("c")
	_, err := r.store.Update(ctx, "fence", func(tx *store.Tx) error {
		c, _, err := tx.Cell("cell-1")
		if err != nil {
			return err
		}
		c.State, c.FenceVersion, c.Version = core.CellFencing, 2, c.Version+1
		return tx.PutCell(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = manager.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: "a", CampaignId: "c", SkuId: "phone-x", CellId: "cell-1", Units: 1})
	if status.Code(err) != codes.FailedPrecondition || rpcstatus.Reason(err) != "CELL_STATE" || rpcstatus.Metadata(err)["state"] != "FENCING" {
		t.Fatalf("%v %v", err, rpcstatus.Metadata(err))
	}
}

func TestJournalPages(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	sre := r.as(access.SRE)
	if _, err := r.as(access.CampaignManager).Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	r.book("c")
	r.alive()
	for i := range 7 {
		if _, err := sre.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: fmt.Sprint("a", i), CampaignId: "c", SkuId: "phone-x", CellId: fmt.Sprintf("cell-%d", i%2+1), Units: 1}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(cell string) (seen []string) {
		token := ""
		for {
			got, err := sre.Quota.ListAdjustments(ctx, &pb.ListAdjustmentsRequest{CampaignId: "c", CellId: cell, PageSize: 3, PageToken: token})
			if err != nil || len(got.GetAdjustments()) > 3 {
				t.Fatalf("%v, %v", got, err)
			}
			for _, a := range got.GetAdjustments() {
				seen = append(seen, a.GetAdjustmentId())
			}
			if token = got.GetNextPageToken(); token == "" {
				return seen
			}
		}
	}
	if got := strings.Join(read(""), " "); got != "a6 a5 a4 a3 a2 a1 a0" {
		t.Errorf("journal %s", got)
	}
	if got := strings.Join(read("cell-2"), " "); got != "a5 a3 a1" {
		t.Errorf("journal of cell-2 %s", got)
	}
}

func TestOperations(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	viewer, sre := r.as(access.Viewer), r.as(access.SRE)
	put := func(id, kind string, state core.OperationState) {
		_, err := r.store.Update(ctx, "put", func(tx *store.Tx) error {
			old, known, err := tx.Operation(id)
			if err != nil {
				return err
			}
			if !known {
				old = core.Operation{ID: id, Kind: kind, Subject: "cell-1"}
			}
			old.State = state
			return tx.PutOperation(old)
		})
		if err != nil {
			t.Fatal(err)
		}
		r.caughtUp()
	}
	for i := range 3 {
		put(fmt.Sprint("op", i), core.OperationFence, core.OperationRunning)
	}
	first, err := viewer.Operations.List(ctx, &pb.OperationServiceListRequest{PageSize: 2})
	if err != nil || len(first.GetOperations()) != 2 || first.GetOperations()[0].GetOperationId() != "op2" {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := viewer.Operations.List(ctx, &pb.OperationServiceListRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
	if err != nil || len(second.GetOperations()) != 1 || second.GetOperations()[0].GetOperationId() != "op0" || second.GetNextPageToken() != "" {
		t.Errorf("%v, %v", second, err)
	}
	if _, err := sre.Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "op0", Reason: "r"}); rpcstatus.Reason(err) != "OPERATION_STATE" || !strings.Contains(err.Error(), "proof") {
		t.Errorf("aborting a fence: %v", err)
	}
	if _, err := viewer.Operations.Get(ctx, &pb.OperationServiceGetRequest{OperationId: "nobody"}); rpcstatus.Reason(err) != "UNKNOWN_OPERATION" {
		t.Errorf("unknown: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		got, err := viewer.Operations.Wait(ctx, &pb.OperationServiceWaitRequest{OperationId: "op1"})
		if err == nil && got.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_DONE {
			err = errors.New("it answered before the end")
		}
		done <- err
	}()
	put("op1", core.OperationFence, core.OperationDone)
	if err := <-done; err != nil {
		t.Error(err)
	}
	short := r.as(access.Viewer)
	begun := time.Now()
	if _, err := short.Operations.Wait(withTimeout(t, 200*time.Millisecond), &pb.OperationServiceWaitRequest{OperationId: "op2"}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("waiting past the deadline: %v after %s", err, time.Since(begun))
	}
}
