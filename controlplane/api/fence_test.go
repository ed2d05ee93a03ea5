package api_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// K31 over the wire: each refusal has its code and its reason, and changes nothing.
func TestK31FenceCellRefusals(t *testing.T) {
	p := newPlant(t)
	ctx, sre := testkit.Deadline(t), p.as(access.SRE)
	good := func() *pb.FenceCellRequest {
		return &pb.FenceCellRequest{CellId: "cell-1", OperationId: "op", Reason: "r", Force: true}
	}
	for _, c := range []struct {
		name   string
		edit   func(*pb.FenceCellRequest)
		code   codes.Code
		reason string
	}{
		{"unknown cell", func(r *pb.FenceCellRequest) { r.CellId = "cell-9" }, codes.NotFound, "UNKNOWN_CELL"},
		{"healthy", func(r *pb.FenceCellRequest) { r.Force = false }, codes.FailedPrecondition, "CELL_HEALTHY"},
		{"stale version", func(r *pb.FenceCellRequest) { r.ExpectedVersion = 9 }, codes.Aborted, "VERSION_CONFLICT"},
		{"no reason", func(r *pb.FenceCellRequest) { r.Reason = "" }, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{"no operation id", func(r *pb.FenceCellRequest) { r.OperationId = "" }, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{"top up of nothing", func(r *pb.FenceCellRequest) { r.TopUp = true }, codes.InvalidArgument, "INVALID_ARGUMENT"},
	} {
		req := good()
		c.edit(req)
		if _, err := sre.Fences.FenceCell(ctx, req); status.Code(err) != c.code || rpcstatus.Reason(err) != c.reason {
			t.Errorf("%s: %v (%s)", c.name, err, rpcstatus.Reason(err))
		}
	}
	for _, glob := range []string{"*", "cell-*", "cell-?", "cell-[12]", "cell-1,cell-2", "all cells", ""} { // all cells at once
		_, fence := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: glob, OperationId: "op", Reason: "r", Force: true})
		_, reclaim := sre.Fences.ReclaimCell(ctx, &pb.ReclaimCellRequest{CellId: glob, OperationId: "op", Reason: "r"})
		_, restore := sre.Fences.RestoreCell(ctx, &pb.RestoreCellRequest{CellId: glob, OperationId: "op", Reason: "r"})
		for verb, err := range map[string]error{"fence": fence, "reclaim": reclaim, "restore": restore} {
			v := rpcstatus.Violations(err)
			if status.Code(err) != codes.InvalidArgument || len(v) != 1 || v[0].Field != "cell_id" || v[0].Rule != "must be 1 to 63 of a-z, 0-9 and -" {
				t.Errorf("%s %q: %v", verb, glob, err)
			}
		}
	}
	if _, err := p.as(access.CampaignManager).Fences.FenceCell(ctx, good()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a campaign manager fences: %v", err)
	}
	preview, err := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-1", ValidateOnly: true, Force: true, Reason: "r"})
	if err != nil || len(preview.GetSealed()) != 1 || preview.GetSealed()[0].GetUnits() != 40 || preview.GetOperation() != nil {
		t.Fatalf("%v, %v", preview, err)
	}
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		if cell, _ := p.store.Cell(ctx, id); cell.Version != 1 || cell.State != core.CellActive {
			t.Fatalf("refusals and previews left %+v", cell)
		}
	}
	if _, err := sre.Fences.ReclaimCell(ctx, &pb.ReclaimCellRequest{CellId: "cell-1", OperationId: "op", Reason: "r"}); rpcstatus.Reason(err) != "CELL_STATE" {
		t.Errorf("reclaim of a cell that is not fenced: %v", err)
	}
	if _, err := sre.Fences.RestoreCell(ctx, &pb.RestoreCellRequest{CellId: "cell-1", OperationId: "op", Reason: "r"}); rpcstatus.Reason(err) != "CELL_NOT_FENCED" {
		t.Errorf("restore of a cell that is not fenced: %v", err)
	}
	if _, err := sre.Fences.RestoreCell(ctx, &pb.RestoreCellRequest{CellId: "cell-1", OperationId: "op", Reason: "r", InstanceGroup: "no group"}); !slices.Contains(violated(err), "instance_group") {
		t.Errorf("a group that is none: %v", err)
	}
}

// The way over the wire: fence, preview and reclaim with top-up, restore.
func TestFenceReclaimRestoreOverTheWire(t *testing.T) {
	p := newPlant(t)
	ctx, sre := testkit.Deadline(t), p.as(access.SRE)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	fence := &pb.FenceCellRequest{CellId: "cell-1", OperationId: "f1", Reason: "rack is dark", Force: true, ExpectedVersion: 1}
	got, err := sre.Fences.FenceCell(ctx, fence)
	if err != nil || got.GetOperation().GetOperationId() != "f1" || got.GetOperation().GetStep() != "FENCING" || got.GetOperation().GetActor() != "sre-ann" || got.GetOperationId() != "f1" {
		t.Fatalf("%v, %v", got, err)
	}
	if again, err := sre.Fences.FenceCell(ctx, fence); err != nil || again.GetOperation().GetOperationId() != "f1" {
		t.Fatalf("a repeat: %v, %v", again, err)
	}
	other := &pb.FenceCellRequest{CellId: "cell-1", OperationId: "f1", Reason: "r", Reclaim: true}
	if _, err := sre.Fences.FenceCell(ctx, other); rpcstatus.Reason(err) != "ID_REUSED" {
		t.Fatalf("the id with other parameters: %v", err)
	}
	st, err := sre.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || st.GetFrozenUnits() != 40 || st.GetCells()[0].GetUnitsAtRisk() != 40 || !st.GetEtcdOk() || st.GetLeader() != "here:1" || len(st.GetCells()) != 2 {
		t.Fatalf("%v, %v", st, err)
	}
	if fenced, other := st.GetCells()[0], st.GetCells()[1]; fenced.GetFrozenUnits() != 40 || fenced.GetOperationId() != "f1" || other.GetFrozenUnits() != 0 || other.GetOperationId() != "" {
		t.Errorf("frozen %d by %q; the other %d by %q", fenced.GetFrozenUnits(), fenced.GetOperationId(), other.GetFrozenUnits(), other.GetOperationId())
	}
	p.done("f1")
	if _, err := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-2", OperationId: "f2", Reason: "r", Force: true}); rpcstatus.Reason(err) != "LAST_LIVE_CELL" {
		t.Fatalf("the last live cell: %v", err)
	}
	preview, err := sre.Fences.ReclaimCell(ctx, &pb.ReclaimCellRequest{CellId: "cell-1", ValidateOnly: true, Reason: "r"})
	if err != nil || len(preview.GetReclaimed()) != 1 || preview.GetReclaimed()[0].GetUnits() != 39 {
		t.Fatalf("%v, %v", preview, err)
	}
	if _, err := sre.Fences.ReclaimCell(ctx, &pb.ReclaimCellRequest{CellId: "cell-1", OperationId: "rec", TopUp: true, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	p.done("rec")
	sales, err := sre.Reports.GetSales(ctx, &pb.GetSalesRequest{CampaignId: "c"})
	if err != nil || len(sales.GetBooks()) != 1 || len(sales.GetStocks()) != 2 {
		t.Fatalf("%v, %v", sales, err)
	}
	if b := sales.GetBooks()[0]; b.GetReserve() != 20 || b.GetAllocations()[0].GetGranted() != 1 || b.GetAllocations()[1].GetGranted() != 79 {
		t.Fatalf("%v", b)
	}
	if st, err = sre.Reports.GetStatus(ctx, &pb.GetStatusRequest{}); err != nil || st.GetCells()[0].GetAllocatedUnits() != 1 || st.GetCells()[0].GetUnitsAtRisk() != 0 {
		t.Fatalf("a report of before the fence is still at risk: %v, %v", st, err)
	}
	if s := sales.GetStocks()[0].GetStock(); s.GetGranted() != 1 || s.GetReserved() != 1 || s.GetAvailable() != 0 {
		t.Fatalf("%v", s)
	}
	if _, err := sre.Fences.RestoreCell(ctx, &pb.RestoreCellRequest{CellId: "cell-1", ValidateOnly: true, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if _, err := sre.Fences.RestoreCell(ctx, &pb.RestoreCellRequest{CellId: "cell-1", OperationId: "res", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	p.done("res")
	if cell, _ := p.store.Cell(ctx, "cell-1"); cell.State != core.CellActive || cell.FenceVersion != 3 {
		t.Fatalf("%+v", cell)
	}
	if st, err = sre.Reports.GetStatus(ctx, &pb.GetStatusRequest{}); err != nil || st.GetFrozenUnits() != 0 {
		t.Fatalf("%v, %v", st, err)
	}
	p.exec("cell-1", "SELECT sale.pay(3, 's', 'u1')") // its customer can pay
	v, err := sre.Reports.Verify(ctx, &pb.VerifyRequest{CampaignId: "c"})
	if err != nil || !v.GetOk() || len(v.GetUnchecked()) != 0 {
		t.Fatalf("%v, %v", v, err)
	}
}
