package api_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/store"
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
	own := r.cell(1)
	own.Weight = 7
	if same := faults(&pb.CheckCellRequest{Spec: own}); same["shard.reader_dsn_file"] != "no such file" {
		t.Errorf("a spec with the stored cell's files: %v", same)
	}
	region = r.as(access.SRE)
	fresh := faults(&pb.CheckCellRequest{Spec: r.cell(2)})
	region = r.as(access.RegionOperator)
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

// A region-operator has no file read that the stored cell does not name, and no password sent
// elsewhere: the content of any file of the control plane would go to an address of its choice.
func TestCheckCellReadsNoOtherFiles(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	stored := r.cell(1)
	stored.Redis.PasswordFile = "password"
	if _, err := r.as(access.SRE).Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: stored, OperationId: "p"}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		change func(*pb.CellSpec)
		fields string
	}{
		{"as stored", func(*pb.CellSpec) {}, ""},
		{"without a password", func(s *pb.CellSpec) { s.Redis.PasswordFile, s.Redis.Addrs = "", []string{"127.0.0.1:2"} }, ""},
		{"another password", func(s *pb.CellSpec) { s.Redis.PasswordFile = "/etc/keys/k1" }, "spec.redis.password_file"},
		{"the password elsewhere", func(s *pb.CellSpec) { s.Redis.Addrs = []string{"127.0.0.1:2"} }, "spec.redis.password_file"},
		{"the password elsewhere too", func(s *pb.CellSpec) { s.Redis.Mode, s.Redis.Addrs = "cluster", append(s.Redis.Addrs, "127.0.0.1:2") }, "spec.redis.password_file"},
		{"other authorities", func(s *pb.CellSpec) { s.Redis.Tls = &pb.StoreTls{CaFile: "/mine.pem"} }, "spec.redis.tls.ca_file"},
		{"a login elsewhere", func(s *pb.CellSpec) {
			s.Kafka.Sasl = &pb.KafkaSasl{Mechanism: "PLAIN", User: "u", PasswordFile: "/etc/keys/k1"}
		}, "spec.kafka.sasl.password_file"},
		{"brokers that others vouch for", func(s *pb.CellSpec) { s.Kafka.Tls = &pb.StoreTls{CaFile: "/mine.pem"} }, "spec.kafka.tls.ca_file"},
		{"other addresses", func(s *pb.CellSpec) { s.Shard.ReaderDsnFile, s.Shard.FencerDsnFile = "x", "y" }, "spec.shard.reader_dsn_file spec.shard.fencer_dsn_file"},
		{"a cell that is not stored", func(s *pb.CellSpec) { s.CellId = "cell-2"; s.Kafka.Topic = "cellquota.admissions.cell-2" }, "spec.redis.password_file spec.shard.reader_dsn_file spec.shard.fencer_dsn_file"},
	} {
		spec := proto.Clone(stored).(*pb.CellSpec)
		row.change(spec)
		_, err := r.as(access.RegionOperator).Cells.CheckCell(ctx, &pb.CheckCellRequest{Spec: spec})
		if got := strings.Join(violated(err), " "); got != row.fields || (err != nil) != (row.fields != "") || err != nil && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v (%s)", row.name, err, got)
		}
		if _, err := r.as(access.SRE).Cells.CheckCell(ctx, &pb.CheckCellRequest{Spec: spec}); err != nil {
			t.Errorf("%s, as an sre: %v", row.name, err)
		}
	}
	looks := 0
	trail, err := r.store.TrailBefore(ctx, store.KindAudit, "", 100)
	for _, one := range trail {
		a := one.Audit
		if a.Actor == "region-operator-ann" && a.Subject == "cell cell-1" && strings.Contains(a.Reason, `redis.password_file "password"`) {
			looks++
		}
	}
	if err != nil || looks != 1 {
		t.Errorf("%d looks with the password by the region-operator in the audit, want 1: %v", looks, err)
	}
}

// What a look may not read, nobody stores to have it looked at later: a region-operator could store any file as
// redis.password_file, and the next look sent it to an address of its choice.
func TestNoOtherFilesAreStored(t *testing.T) {
	for name, row := range map[string]struct{ dir, own, others string }{
		"without secrets_dir": {"", "own", "/etc/keys/k1"},
		"with secrets_dir":    {"/run/secrets", "/run/secrets/east/own", "/run/secrets/west/k1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, row.dir)
			ctx, sre, region := testkit.Deadline(t), r.as(access.SRE).Cells, r.as(access.RegionOperator).Cells
			spec := func(password string) *pb.CellSpec {
				s := r.cell(1)
				s.Redis.PasswordFile = password
				if row.dir != "" {
					s.Shard.ReaderDsnFile, s.Shard.FencerDsnFile = row.dir+"/east/reader", row.dir+"/east/fencer"
				}
				return s
			}
			refused := func(what string, err error) {
				t.Helper()
				if strings.Join(violated(err), " ") != "spec.redis.password_file" || status.Code(err) != codes.PermissionDenied {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := region.CreateCell(ctx, &pb.CreateCellRequest{Spec: spec(row.others), OperationId: "c1"})
			refused("created", err)
			if _, err := sre.CreateCell(ctx, &pb.CreateCellRequest{Spec: spec(row.own), OperationId: "c2"}); err != nil {
				t.Fatal(err)
			}
			if _, err := region.CreateCell(ctx, &pb.CreateCellRequest{Spec: spec(row.own), OperationId: "c2"}); err != nil {
				t.Errorf("a repeat of what is stored: %v", err)
			}
			_, err = region.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: spec(row.others), OperationId: "u1"})
			refused("updated", err)
			heavier := spec(row.own)
			heavier.Weight = 7
			if _, err := region.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: heavier, OperationId: "u2"}); err != nil {
				t.Errorf("another weight: %v", err)
			}
			_, err = region.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: spec("/run/secrets/../../etc/passwd"), OperationId: "u3"})
			refused("out of the directory", err)
		})
	}
}
