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

func TestPauseAndResumeACell(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx, region := testkit.Deadline(t), r.as(access.RegionOperator)
	if _, err := region.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", ExpectedVersion: -1}); strings.Join(violated(err), " ") != "operation_id expected_version reason" {
		t.Errorf("every fault at once: %v", err)
	}
	dry, err := region.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "p1", Reason: "drill", ValidateOnly: true})
	if err != nil || !dry.GetCell().GetPaused() || r.get("cell-1").GetPaused() {
		t.Fatalf("validate only: %v, %v; stored %v", dry, err, r.get("cell-1"))
	}
	if _, err := region.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "p0", Reason: "drill", ExpectedVersion: 9}); rpcstatus.Reason(err) != "VERSION_CONFLICT" {
		t.Errorf("another version: %v", err)
	}
	before := r.get("cell-1").GetVersion()
	for range 2 { // the second is a repeat
		out, err := region.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "p1", Reason: "drill", ExpectedVersion: before})
		if c := out.GetCell(); err != nil || !c.GetPaused() || c.GetPauseReason() != "drill" || c.GetVersion() != before+1 || out.GetOperationId() != "p1" {
			t.Fatalf("%v, %v", out, err)
		}
	}
	if c := r.get("cell-1"); !c.GetPaused() || c.GetPauseReason() != "drill" {
		t.Fatalf("GetCell: %v", c)
	}
	if c := r.get("cell-2"); c.GetPaused() {
		t.Fatalf("the other cell is paused too: %v", c)
	}
	if _, err := region.Cells.ResumeCell(ctx, &pb.ResumeCellRequest{CellId: "cell-1", OperationId: "p1"}); rpcstatus.Reason(err) != "ID_REUSED" {
		t.Errorf("the pause's id for a resume: %v", err)
	}
	out, err := region.Cells.ResumeCell(ctx, &pb.ResumeCellRequest{CellId: "cell-1", OperationId: "p2"})
	if c := out.GetCell(); err != nil || c.GetPaused() || c.GetPauseReason() != "" || c.GetVersion() != before+2 {
		t.Fatalf("%v, %v", out, err)
	}
	if _, err := region.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-9", OperationId: "p3", Reason: "drill"}); rpcstatus.Reason(err) != "UNKNOWN_CELL" {
		t.Errorf("unknown cell: %v", err)
	}
}

func (r *rig) get(id string) *pb.Cell {
	r.t.Helper()
	out, err := r.as(access.Viewer).Cells.GetCell(testkit.Deadline(r.t), &pb.GetCellRequest{CellId: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.GetCell()
}

func TestUpdateCell(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx, sre := testkit.Deadline(t), r.as(access.SRE)
	update := func(op string, edit func(*pb.CellSpec)) (*pb.UpdateCellResponse, error) {
		spec := r.cell(1)
		edit(spec)
		return sre.Cells.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: spec, OperationId: op})
	}
	_, err := update("u0", func(s *pb.CellSpec) {
		s.InstanceGroup, s.Kafka.Topic, s.Kafka.Partitions, s.Weight = "b", "other", 2, 7
	})
	if got := strings.Join(violated(err), " "); status.Code(err) != codes.FailedPrecondition || rpcstatus.Reason(err) != "CELL_FIXED" || got != "instance_group kafka.topic kafka.partitions" {
		t.Errorf("what a cell is known by: %v (%s)", err, got)
	}
	_, err = update("u0", func(s *pb.CellSpec) { s.Weight, s.Redis.Mode = 0, "x" })
	if got := strings.Join(violated(err), " "); status.Code(err) != codes.InvalidArgument || got != "spec.weight spec.redis.mode" {
		t.Errorf("a bad spec: %v (%s)", err, got)
	}
	_, err = update("u0", func(s *pb.CellSpec) { s.Shard.FencerDsnFile = "fencer-2" })
	if got := strings.Join(violated(err), " "); got != "shard.fencer_dsn_file" {
		t.Errorf("another cell's shard: %v", err)
	}
	r.shards.version = 4
	_, err = update("u0", func(s *pb.CellSpec) { s.Shard.FencerDsnFile = "elsewhere" })
	if got := strings.Join(violated(err), " "); got != "shard.fencer_dsn_file" {
		t.Errorf("a shard with another fence version: %v", err)
	}
	r.shards.version = 1
	if c := r.get("cell-1"); c.GetVersion() != 2 || c.GetSpec().GetWeight() != 1 {
		t.Fatalf("refusals changed the cell: %v", c)
	}
	change := func(s *pb.CellSpec) {
		s.Weight, s.Region, s.Redis.Addrs, s.Shard.FencerDsnFile = 7, "west", []string{"127.0.0.1:2"}, "elsewhere"
	}
	for range 2 { // the second is a repeat: it tells of the cell, and of no change
		out, err := update("u1", change)
		if c := out.GetCell(); err != nil || c.GetVersion() != 3 || c.GetSpec().GetWeight() != 7 || c.GetSpec().GetRegion() != "west" {
			t.Fatalf("%v, %v", out, err)
		}
	}
	if _, err := update("u1", func(s *pb.CellSpec) { s.Weight = 9 }); rpcstatus.Reason(err) != "ID_REUSED" {
		t.Errorf("the id with another file: %v", err)
	}
	out, err := update("u2", change)
	if err != nil || len(out.GetChanged()) != 0 || out.GetCell().GetVersion() != 3 {
		t.Errorf("the same file under another id: %v, %v", out, err)
	}
}

// A region-operator changes the cells of its regions only, and moves none out of them.
func TestRegionOperatorsKeepToTheirRegions(t *testing.T) {
	r := newRig(t)
	ctx, sre, region := testkit.Deadline(t), r.as(access.SRE), r.as(access.RegionOperator)
	west := r.cell(1)
	west.Region = "west"
	if _, err := sre.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: west, OperationId: "p"}); err != nil {
		t.Fatal(err)
	}
	if _, err := sre.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: r.cell(2), OperationId: "p"}); err != nil {
		t.Fatal(err)
	}
	moved, out := r.cell(1), r.cell(2) // both say east at first
	out.Region = "west"
	for name, call := range map[string]func() error{
		"pause": func() error {
			_, err := region.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "o", Reason: "r"})
			return err
		},
		"resume": func() error {
			_, err := region.Cells.ResumeCell(ctx, &pb.ResumeCellRequest{CellId: "cell-1", OperationId: "o"})
			return err
		},
		"update": func() error {
			_, err := region.Cells.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: west, OperationId: "o"})
			return err
		},
		"take": func() error {
			_, err := region.Cells.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: moved, OperationId: "o"})
			return err
		},
		"give": func() error {
			_, err := region.Cells.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: out, OperationId: "o"})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.PermissionDenied || rpcstatus.Metadata(err)["region"] != "west" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := r.get("cell-1"); c.GetPaused() || c.GetSpec().GetRegion() != "west" {
		t.Errorf("a refused call changed %v", c)
	}
}
