package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// putCells stores n ACTIVE cells beside what is there.
func putCells(t *testing.T, etcd *testkit.EtcdCluster, n int) {
	t.Helper()
	s := direct(t, etcd)
	for i := range n {
		id := ids.CellID(fmt.Sprintf("cell-%d", i+1))
		_, err := s.Update(testkit.Deadline(t), "put", func(tx *store.Tx) error {
			if _, _, err := tx.Cell(id); err != nil {
				return err
			}
			return tx.PutCell(core.Cell{
				Spec: core.CellSpec{
					ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
					Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
					Shard: core.ShardSpec{DSNFile: "/nowhere/a", ReaderDSNFile: "/nowhere/b", FencerDSNFile: fmt.Sprint("/nowhere/c", i)},
				}, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a",
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// direct is a store beside the replicas.
func direct(t *testing.T, etcd *testkit.EtcdCluster) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func saleYAML(id string, closes time.Duration, cells ...string) string {
	now := time.Now().UTC()
	return fmt.Sprintf(`apiVersion: cellquota/v1
kind: Campaign
campaign_id: %s
open_at: %s
close_at: %s
refund_rule: NO_RESTOCK
skus:
- sku_id: phone-%s
  physical_stock: 12000
  sale_limit: 10000
  reserve: 400
  price: {amount: "4999.00", currency: CNY}
cells: [%s]
`, id, now.Add(-time.Minute).Format(time.RFC3339), now.Add(closes).Format(time.RFC3339Nano), id, strings.Join(cells, ", "))
}

// booked makes a campaign and waits until the leader wrote its books.
func booked(t *testing.T, c *client.Client, id, yaml string) {
	t.Helper()
	ctx := testkit.Deadline(t)
	if _, err := c.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: yaml, OperationId: "create-" + id}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: id, OperationId: "publish-" + id}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		got, err := c.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: id})
		if err == nil && len(got.GetBooks()) != 1 {
			err = errors.New("no book yet")
		}
		return err
	})
}

// mutations are a valid call of every method that changes a record, over campaign c of
// cell-1 and cell-2, and a draft d.
func mutations(c, m *client.Client) map[string]func(context.Context) error {
	spec := &pb.CellSpec{
		CellId: "cell-9", Region: "east", InstanceGroup: "a", Weight: 1, Redis: &pb.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: &pb.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "cellquota.admissions.cell-9", Partitions: 1, Replication: 1},
		Shard: &pb.ShardSpec{DsnFile: "/nowhere/app", ReaderDsnFile: "/nowhere/reader", FencerDsnFile: "/nowhere/fencer"},
	}
	return map[string]func(context.Context) error{
		"CreateCell": func(ctx context.Context) error {
			return second(c.Cells.CreateCell(ctx, &pb.CreateCellRequest{Spec: spec, OperationId: "o1"}))
		},
		"UpdateCell": func(ctx context.Context) error {
			changed := proto.CloneOf(spec)
			changed.CellId, changed.Kafka.Topic = "cell-1", "t"
			return second(c.Cells.UpdateCell(ctx, &pb.UpdateCellRequest{Spec: changed, OperationId: "o18", Reason: "r"}))
		},
		"PauseCell": func(ctx context.Context) error {
			return second(c.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "o19", Reason: "r"}))
		},
		"ResumeCell": func(ctx context.Context) error {
			return second(c.Cells.ResumeCell(ctx, &pb.ResumeCellRequest{CellId: "cell-1", OperationId: "o20", Reason: "r"}))
		},
		"FenceCell": func(ctx context.Context) error {
			return second(c.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-1", OperationId: "o2", Force: true, Reason: "r"}))
		},
		"ReclaimCell": func(ctx context.Context) error {
			return second(c.Fences.ReclaimCell(ctx, &pb.ReclaimCellRequest{CellId: "cell-1", OperationId: "o3", Reason: "r"}))
		},
		"RestoreCell": func(ctx context.Context) error {
			return second(c.Fences.RestoreCell(ctx, &pb.RestoreCellRequest{CellId: "cell-1", OperationId: "o4", InstanceGroup: "b", Reason: "r"}))
		},
		"CreateCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: saleYAML("new", time.Hour, "cell-1"), OperationId: "o5"}))
		},
		"UpdateCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.UpdateCampaign(ctx, &pb.UpdateCampaignRequest{Yaml: saleYAML("d", 2*time.Hour, "cell-1"), OperationId: "o6", Reason: "r"}))
		},
		"PublishCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: "d", OperationId: "o7"}))
		},
		"CloseCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "o8", Reason: "r"}))
		},
		"PauseCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.PauseCampaign(ctx, &pb.PauseCampaignRequest{CampaignId: "c", OperationId: "o9", Reason: "r"}))
		},
		"ResumeCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.ResumeCampaign(ctx, &pb.ResumeCampaignRequest{CampaignId: "c", OperationId: "o10", Reason: "r"}))
		},
		"CancelCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.CancelCampaign(ctx, &pb.CancelCampaignRequest{CampaignId: "c", OperationId: "o11", Reason: "r", RefundAll: true}))
		},
		"SetSaleLimit": func(ctx context.Context) error {
			return second(m.Campaigns.SetSaleLimit(ctx, &pb.SetSaleLimitRequest{CampaignId: "c", SkuId: "phone-c", SaleLimit: 10_001, OperationId: "o12", Reason: "r"}))
		},
		"AddCell": func(ctx context.Context) error {
			return second(m.Campaigns.AddCell(ctx, &pb.AddCellRequest{CampaignId: "c", CellId: "cell-3", OperationId: "o13", Reason: "r"}))
		},
		"DeleteCampaign": func(ctx context.Context) error {
			return second(m.Campaigns.DeleteCampaign(ctx, &pb.DeleteCampaignRequest{CampaignId: "d", OperationId: "o14", Reason: "r"}))
		},
		"DrawLottery": func(ctx context.Context) error {
			return second(m.Campaigns.DrawLottery(ctx, &pb.DrawLotteryRequest{CampaignId: "c", OperationId: "o24", Reason: "r"}))
		},
		"HandOverBuckets": func(ctx context.Context) error {
			return second(c.Routing.HandOverBuckets(ctx, &pb.HandOverBucketsRequest{CampaignId: "c", FromCellId: "cell-1", ToCellId: "cell-2", BucketFrom: 0, BucketTo: 1, OperationId: "o27", Reason: "r"}))
		},
		"DrainCell": func(ctx context.Context) error {
			return second(c.Cells.DrainCell(ctx, &pb.DrainCellRequest{CellId: "cell-1", OperationId: "o25", Reason: "r"}))
		},
		"RetireCell": func(ctx context.Context) error {
			return second(c.Cells.RetireCell(ctx, &pb.RetireCellRequest{CellId: "cell-1", OperationId: "o26", Reason: "r"}))
		},
		"TopUp": func(ctx context.Context) error {
			return second(c.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: "a1", CampaignId: "c", SkuId: "phone-c", CellId: "cell-1", Units: 1, Reason: "r"}))
		},
		"ReturnUnits": func(ctx context.Context) error {
			return second(c.Quota.ReturnUnits(ctx, &pb.ReturnUnitsRequest{AdjustmentId: "a2", CampaignId: "c", SkuId: "phone-c", CellId: "cell-1", Units: 1, Reason: "r"}))
		},
		"TransferUnits": func(ctx context.Context) error {
			return second(c.Quota.TransferUnits(ctx, &pb.TransferUnitsRequest{AdjustmentId: "a3", CampaignId: "c", SkuId: "phone-c", FromCellId: "cell-1", ToCellId: "cell-2", Units: 1, Reason: "r"}))
		},
		"ApplyRebalance": func(ctx context.Context) error {
			moves := []*pb.RebalanceMove{{SkuId: "phone-c", FromCellId: "cell-1", ToCellId: "cell-2", Units: 1}}
			return second(c.Quota.ApplyRebalance(ctx, &pb.ApplyRebalanceRequest{CampaignId: "c", Moves: moves, OperationId: "o21", Reason: "r"}))
		},
		"RotateKey": func(ctx context.Context) error {
			return second(c.Access.RotateKey(ctx, &pb.RotateKeyRequest{Use: "permit", Kid: "k", OperationId: "o22", Reason: "r"}))
		},
		"RevokeKey": func(ctx context.Context) error {
			return second(c.Access.RevokeKey(ctx, &pb.RevokeKeyRequest{Use: "permit", Kid: "k", OperationId: "o23", Reason: "r"}))
		},
		"CreateToken": func(ctx context.Context) error {
			return second(c.Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "bob", Role: "viewer", TtlSeconds: 3600, OperationId: "o15", Reason: "r"}))
		},
		"RevokeToken": func(ctx context.Context) error {
			return second(c.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: "o0", OperationId: "o16", Reason: "r"}))
		},
		"Approve": func(ctx context.Context) error {
			return second(c.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "waits", Reason: "r"}))
		},
		"Reject": func(ctx context.Context) error {
			return second(c.Access.Reject(ctx, &pb.RejectRequest{ApprovalId: "waits", Reason: "r"}))
		},
		"RecoverStore": func(ctx context.Context) error {
			return second(c.Recovery.RecoverStore(ctx, &pb.RecoverStoreRequest{OperationId: "o17", Reason: "r"}))
		},
		"Abort": func(ctx context.Context) error {
			return second(c.Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "waits", Reason: "r"}))
		},
	}
}

func second[T any](_ T, err error) error { return err }

// reads are the methods for operators that change no record: etcd's absence is not
// what refuses them.
var reads = []string{
	"GetCell", "ListCells", "GetGate", "CheckCell", "ValidateCampaign", "GetCampaign", "ListCampaigns", "PreflightCampaign",
	"PreviewSplit", "ListAllocations", "PlanRebalance", "ListAdjustments", "LookupHome", "GetRoute", "List", "Get", "Wait",
	"GetStatus", "Verify", "Trace", "GetOrder", "ResolveRequests", "GetSales", "GetUndersell", "GetCampaignReport", "ListAuditEvents",
	"ListTokens", "ListKeys", "ListApprovals", "GetLotteryEvidence", "ListFindings", "GetFinding",
}

// handed are changes that a cell makes, whose shard has the record: etcd's absence is not what refuses them.
var handed = []string{"RefundOrder", "ReleaseReservation", "ReturnAdmission", "RebuildMirror", "RunReconcile", "RepairFinding"}

// forOperators are the methods of the descriptors that some operator may call.
func forOperators() (out []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				method := fmt.Sprintf("/%s/%s", service.FullName(), m.Name())
				if slices.ContainsFunc(access.Roles(), func(role string) bool {
					return access.Authorize(context.Background(), transport.Principal{Name: "x", Role: role}, method) == nil
				}) {
					out = append(out, m)
				}
			}
		}
		return true
	})
	return out
}

// Every method that an operator may call is a mutation that is called here, or a read by
// name; and no read has what a mutation carries. So a new method cannot be forgotten.
func TestEveryMutationIsCalled(t *testing.T) {
	have, seen := mutations(&client.Client{}, &client.Client{}), map[string]bool{}
	for _, m := range forOperators() {
		name, in := string(m.Name()), m.Input().Fields()
		seen[name] = true
		read := slices.Contains(reads, name)
		switch {
		case slices.Contains(handed, name):
		case !read && have[name] == nil:
			t.Errorf("%s is neither called with etcd gone nor a read", m.FullName())
		case read && have[name] != nil:
			t.Errorf("%s is called, and said to be a read", m.FullName())
		case read && (in.ByName("operation_id") != nil && in.ByName("reason") != nil || in.ByName("adjustment_id") != nil && in.ByName("units") != nil):
			t.Errorf("%s is said to be a read and takes what mutations do", m.FullName())
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(have)), reads, handed) {
		if !seen[name] {
			t.Errorf("there is no method %s for operators", name)
		}
	}
}

// A replica whose etcd is gone answers reads from its view, whose age grows and is
// told; every mutation answers UNAVAILABLE, by name, long before its deadline; when etcd
// is back, so is everything.
func TestAReplicaWithoutEtcd(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	putCells(t, etcd, 3)
	wire := fault.New(t, etcd.Endpoint(0))
	a, _ := replicaFor(t, etcd, operators(), "--etcd-endpoints", wire.Addr(), "--etcd-timeout", "1s", "--archive-dir", t.TempDir())
	ready(t, a)
	meg := dial(t, a, client.Options{Token: "campaign-manager", Timeout: 40 * time.Second})
	ann := dial(t, a, client.Options{Token: "sre", Timeout: 40 * time.Second})
	booked(t, meg, "c", saleYAML("c", time.Hour, "cell-1", "cell-2"))
	ctx := testkit.Deadline(t)
	if _, err := meg.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: saleYAML("d", time.Hour, "cell-1"), OperationId: "create-d"}); err != nil {
		t.Fatal(err)
	}
	for name, hurt := range map[string]func(){"refuses": wire.Break, "is silent": func() { wire.Silence(fault.BothWays) }} {
		t.Run(name, func(t *testing.T) {
			hurt()
			withoutEtcd(t, a, ann, meg)
			wire.Heal()
			testkit.Eventually(t, 20*time.Second, func() error {
				_, err := ann.Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "bob", Role: "viewer", TtlSeconds: 3600, OperationId: "healed-" + strings.Fields(name)[0], Reason: "r"})
				return err
			})
			testkit.Eventually(t, 20*time.Second, func() error {
				st, err := ann.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
				if err == nil && (!st.GetEtcdOk() || st.GetViewAgeMs() > 2_000) {
					err = fmt.Errorf("status %v", st)
				}
				return err
			})
			ready(t, a)
		})
	}
}

// soon is how long a mutation may take to say that etcd is gone: its time-out, 1 s
// here, a third of it, and room for a busy machine.
const soon = 7 * time.Second

func withoutEtcd(t *testing.T, a *running, ann, meg *client.Client) {
	t.Helper()
	ctx := testkit.Deadline(t)
	var calls sync.WaitGroup
	for name, call := range mutations(ann, meg) {
		calls.Go(func() {
			from := time.Now()
			err := call(ctx)
			took := time.Since(from)
			if status.Code(err) != codes.Unavailable || rpcstatus.Reason(err) != "STORE_UNAVAILABLE" {
				t.Errorf("%s: %v (%s), want UNAVAILABLE by the name STORE_UNAVAILABLE", name, err, rpcstatus.Reason(err))
			}
			if took > soon {
				t.Errorf("%s took %s to say so", name, took)
			}
		})
	}
	calls.Wait()
	var ages [2]int64
	for i := range ages {
		list, err := ann.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: "c"})
		if err != nil || len(list.GetBooks()) != 1 {
			t.Fatalf("books from the view: %v, %v", list, err)
		}
		st, err := ann.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
		if err != nil || st.GetEtcdOk() || st.GetRevision() == 0 {
			t.Errorf("status: %v, %v", st, err)
		}
		ages[i] = list.GetViewAgeMs()
		testkit.Hold(t, 100*time.Millisecond, "the view grows older")
	}
	if ages[0] < 1_000 || ages[1] < ages[0]+100 {
		t.Errorf("the view's age does not grow: %v ms", ages)
	}
	if age := metric(t, a, "cellquota_view_age_seconds"); age < float64(ages[1])/1000 {
		t.Errorf("view_age_seconds is %v after %d ms", age, ages[1])
	}
}

// metric scrapes one gauge without labels.
func metric(t *testing.T, r *running, name string) float64 {
	t.Helper()
	resp, err := http.Get(r.metrics.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		var value float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
