package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// callers are every kind of caller that there is: a bearer token or a process.
var callers = map[string]transport.DialOptions{
	access.RegionOperator: bearer(access.RegionOperator), access.CampaignManager: bearer(access.CampaignManager),
	access.SRE: bearer(access.SRE), access.Viewer: bearer(access.Viewer),
	access.Cell: {Workload: "cell/cell-1"}, access.Edge: {Workload: "edge/e1"}, access.ControlPlane: {Workload: "controlplane/x"}, "nobody": {},
}

func bearer(token string) transport.DialOptions {
	return transport.DialOptions{Token: func(context.Context) (string, error) { return token, nil }}
}

// operators has one per role, whose token is the role's name; regions for the one.
func operators() string {
	var text strings.Builder
	text.WriteString("operators:\n")
	add := func(name, role, regions string) {
		digest := sha256.Sum256([]byte(name))
		fmt.Fprintf(&text, "- {name: %s, role: %s, token_sha256: %s, regions: [%s]}\n", name, role, hex.EncodeToString(digest[:]), regions)
	}
	for _, role := range access.Roles() {
		add(role, role, "east")
	}
	add("west", access.RegionOperator, "west")
	return text.String()
}

// documented reads the page that operators read: method → who may call it.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/roles.md")
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	may := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "RPC" {
			roles = cells[1:]
		}
		name := regexp.MustCompile("^`([A-Za-z]+)\\.([A-Za-z]+)`$").FindStringSubmatch(cells[0])
		if name == nil || len(cells) != len(roles)+1 {
			continue
		}
		method := "/cellquota.v1." + name[1] + "/" + name[2]
		may[method] = []string{}
		for i, role := range roles {
			if cells[i+1] == "yes" {
				may[method] = append(may[method], role)
			}
		}
	}
	if len(may) < 40 {
		t.Fatalf("only %d rows were found", len(may))
	}
	return may
}

// ask calls a method with a blank message and gives the code of the answer.
func ask(t *testing.T, conn *grpc.ClientConn, method string) (codes.Code, error) {
	t.Helper()
	d := descriptor(t, method)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	in, out := blank(t, d.Input()), blank(t, d.Output())
	if !d.IsStreamingClient() && !d.IsStreamingServer() {
		err := conn.Invoke(ctx, method, in, out)
		return status.Code(err), err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: d.IsStreamingClient(), ServerStreams: d.IsStreamingServer()}, method)
	if err == nil {
		err = errors.Join(stream.SendMsg(in), stream.CloseSend())
		if received := stream.RecvMsg(out); received != nil {
			err = received
		}
	}
	return status.Code(err), err
}

func descriptor(t *testing.T, method string) protoreflect.MethodDescriptor {
	t.Helper()
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MethodDescriptor) //nolint:forcetypeassert // the name of a method
}

func blank(t *testing.T, d protoreflect.MessageDescriptor) any {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New().Interface()
}

func connect(t *testing.T, r *running, o transport.DialOptions) *grpc.ClientConn {
	t.Helper()
	o.Dev = true
	conn, err := transport.Dial(r.listener.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Every RPC of the page, asked by every kind of caller of a real replica: refused
// exactly where the page says so, and served where it says so. A caller without credentials is UNAUTHENTICATED
// everywhere, any other that may not is PERMISSION_DENIED.
func TestEveryRoleOnEveryRPC(t *testing.T) {
	r, _ := replicaFor(t, testkit.Etcd(t, 1), operators())
	ready(t, r)
	asked := 0
	for name, options := range callers {
		conn := connect(t, r, options)
		for method, may := range documented(t) {
			got, err := ask(t, conn, method)
			asked++
			switch allowed := slices.Contains(may, name); {
			case name == "nobody" && got != codes.Unauthenticated:
				t.Errorf("%s by nobody: %v", method, err)
			case name != "nobody" && !allowed && got != codes.PermissionDenied:
				t.Errorf("%s by %s, who may not: %v", method, name, err)
			case allowed && (got == codes.PermissionDenied || got == codes.Unauthenticated || got == codes.Unimplemented):
				t.Errorf("%s by %s, who may: %v", method, name, err)
			}
		}
	}
	if asked < 300 {
		t.Errorf("only %d questions were asked", asked)
	}
}

// A region-operator of another region is refused every call that changes or
// probes a cell; one of the cell's own region is not.
func TestRegionOperatorsStayInTheirRegion(t *testing.T) {
	r, _ := replicaFor(t, testkit.Etcd(t, 1), operators())
	ready(t, r)
	spec := &pb.CellSpec{
		CellId: "cell-1", Region: "east", InstanceGroup: "a", Weight: 1, Redis: &pb.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: &pb.KafkaSpec{Brokers: testkit.Kafka(t, 1).Brokers(), Topic: "cellquota.admissions.cell-1", Partitions: 1, Replication: 1},
		Shard: &pb.ShardSpec{DsnFile: "/nowhere/app", ReaderDsnFile: "/nowhere/reader", FencerDsnFile: "/nowhere/fencer"},
	}
	calls := map[string]func(context.Context, pb.CellAdminServiceClient) error{
		"CreateCell": func(ctx context.Context, c pb.CellAdminServiceClient) error {
			_, err := c.CreateCell(ctx, &pb.CreateCellRequest{Spec: spec, OperationId: "op"})
			return err
		},
		"UpdateCell": func(ctx context.Context, c pb.CellAdminServiceClient) error {
			_, err := c.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: spec, OperationId: "op2", Reason: "r"})
			return err
		},
		"CheckCell": func(ctx context.Context, c pb.CellAdminServiceClient) error {
			_, err := c.CheckCell(ctx, &pb.CheckCellRequest{CellId: "cell-1"})
			return err
		},
		"PauseCell": func(ctx context.Context, c pb.CellAdminServiceClient) error {
			_, err := c.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "op3", Reason: "r"})
			return err
		},
		"ResumeCell": func(ctx context.Context, c pb.CellAdminServiceClient) error {
			_, err := c.ResumeCell(ctx, &pb.ResumeCellRequest{CellId: "cell-1", OperationId: "op4", Reason: "r"})
			return err
		},
	}
	calls["DrainCell"] = func(ctx context.Context, c pb.CellAdminServiceClient) error {
		_, err := c.DrainCell(ctx, &pb.DrainCellRequest{CellId: "cell-1", OperationId: "op6", Reason: "r"})
		return err
	}
	calls["RetireCell"] = func(ctx context.Context, c pb.CellAdminServiceClient) error {
		_, err := c.RetireCell(ctx, &pb.RetireCellRequest{CellId: "cell-1", OperationId: "op7", Reason: "r"})
		return err
	}
	calls["RebuildMirror"] = func(ctx context.Context, c pb.CellAdminServiceClient) error {
		_, err := c.RebuildMirror(ctx, &pb.RebuildMirrorRequest{CellId: "cell-1", CampaignId: "c", OperationId: "op8", Reason: "r"})
		return err
	}
	for method, may := range documented(t) { // a new call for region-operators alone needs a row here
		short, ours := strings.CutPrefix(method, "/cellquota.v1.CellAdminService/")
		if _, known := calls[short]; ours && slices.Contains(may, access.RegionOperator) && !slices.Contains(may, access.Viewer) && !known {
			t.Errorf("%s is not asked here", method)
		}
	}
	east, west := pb.NewCellAdminServiceClient(connect(t, r, callers[access.RegionOperator])), pb.NewCellAdminServiceClient(connect(t, r, bearer("west")))
	ctx := testkit.Deadline(t)
	for _, name := range []string{"CreateCell", "CreateCell", "UpdateCell", "CheckCell", "PauseCell", "ResumeCell", "RebuildMirror", "DrainCell", "RetireCell"} { // twice: the second finds the cell
		err := calls[name](ctx, west)
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s from another region: %v", name, err)
		}
		if err := calls[name](ctx, east); status.Code(err) == codes.PermissionDenied {
			t.Errorf("%s from the cell's own region: %v", name, err)
		}
	}
	stolen := proto.CloneOf(spec)
	stolen.Region = "west"
	if _, err := west.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: stolen, OperationId: "op5", Reason: "r"}); status.Code(err) == codes.OK {
		t.Errorf("a cell was moved into one's own region: %v", err)
	}
}
