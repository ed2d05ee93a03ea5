package api_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// CheckCell over the wire, of cells whose Redis and shard do not answer: package check's own tests have
// the findings.
func TestCheckCell(t *testing.T) {
	r := newRig(t)
	r.provision(1)
	ctx, region := testkit.Deadline(t), r.as(access.RegionOperator)
	faults := func(req *pb.CheckCellRequest) map[string]string {
		t.Helper()
		out, err := region.Cells.CheckCell(ctx, req)
		if err != nil || out.GetOk() {
			t.Fatalf("%v, %v", out, err)
		}
		got := map[string]string{}
		for _, f := range out.GetFindings() {
			if !f.GetOk() {
				got[f.GetSubject()] = f.GetSeen()
			}
		}
		return got
	}
	stored := faults(&pb.CheckCellRequest{CellId: "cell-1"})
	if stored["shard.reader_dsn_file"] != "no such file" || stored["processes"] == "" {
		t.Errorf("a stored cell: %v", stored)
	}
	if _, missing := stored["topic cellquota.admissions.cell-1"]; missing {
		t.Errorf("provisioning made the topic: %v", stored)
	}
	fresh := faults(&pb.CheckCellRequest{Spec: r.cell(2)})
	if _, expected := fresh["processes"]; expected || fresh["redis 127.0.0.1:1"] == "" {
		t.Errorf("a spec that is not provisioned: %v", fresh)
	}
	if _, err := region.Cells.CheckCell(ctx, &pb.CheckCellRequest{CellId: "cell-9"}); rpcstatus.Reason(err) != "UNKNOWN_CELL" {
		t.Errorf("unknown cell: %v", err)
	}
	if _, err := region.Cells.CheckCell(ctx, &pb.CheckCellRequest{CellId: "cell-1", Spec: r.cell(2)}); strings.Join(violated(err), " ") != "cell_id" {
		t.Errorf("both: %v", err)
	}
	bad := r.cell(2)
	bad.Weight, bad.Shard.FencerDsnFile = 0, "postgres://f:hunter2@db/x"
	_, err := region.Cells.CheckCell(ctx, &pb.CheckCellRequest{Spec: bad})
	if strings.Join(violated(err), " ") != "spec.weight spec.shard.fencer_dsn_file" || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a bad spec: %v", err)
	}
	moved := r.cell(1)
	moved.Region = "west"
	for name, req := range map[string]*pb.CheckCellRequest{"another region": {Spec: moved}} {
		if _, err := region.Cells.CheckCell(ctx, req); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.as(access.Viewer).Cells.CheckCell(ctx, &pb.CheckCellRequest{CellId: "cell-1"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
}
