package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// replica runs one assembled replica and gives its addresses.
func replica(t *testing.T, etcd *testkit.EtcdCluster, args ...string) (*running, func() error) {
	t.Helper()
	digest := sha256.Sum256([]byte("token"))
	return replicaFor(t, etcd, "operators: [{name: ann, role: sre, token_sha256: "+hex.EncodeToString(digest[:])+"}]", args...)
}

func operatorsFileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "operators.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replicaFor runs one for the operators of a file.
func replicaFor(t *testing.T, etcd *testkit.EtcdCluster, text string, args ...string) (*running, func() error) {
	t.Helper()
	operators := operatorsFileOf(t, text)
	cfg, err := config.Load[Config](append([]string{
		"--dev", "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), "--metrics-addr", "127.0.0.1:0", "--etcd-endpoints", strings.Join(etcd.Endpoints(), ","),
		"--operators-file", operators, "--leader-ttl", "1s", "--lease-ttl", "1s",
	}, args...), config.Options{Program: "cellquotad controlplane", Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	group := lifecycle.New(ctx, log)
	r, err := assemble(group, cfg, log, nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- group.Wait(cfg.ShutdownGrace) }()
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = stop() })
	return r, stop
}

func ready(t *testing.T, r *running) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		resp, err := http.Get(r.metrics.URL() + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d: %s", resp.StatusCode, body)
		}
		return nil
	})
}

func dial(t *testing.T, r *running, o client.Options) *client.Client {
	t.Helper()
	o.Addrs, o.Dev = []string{r.listener.Addr().String()}, true
	c, err := client.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A replica comes up over an etcd, leads, serves every service, and drains.
func TestReplica(t *testing.T) {
	r, stop := replica(t, testkit.Etcd(t, 1))
	ready(t, r)
	ctx := testkit.Deadline(t)
	sre := dial(t, r, client.Options{Token: "token"})
	st, err := sre.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || st.GetTerm().GetCount() != 1 || !st.GetEtcdOk() {
		t.Errorf("status %v, %v", st, err)
	}
	_, err = sre.Cells.CreateCell(ctx, &pb.CreateCellRequest{OperationId: "op", Spec: &pb.CellSpec{
		CellId: "cell-1", Region: "east", InstanceGroup: "a", Weight: 1, Redis: &pb.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: &pb.KafkaSpec{Brokers: testkit.Kafka(t, 1).Brokers(), Topic: "cellquota.admissions.cell-1", Partitions: 1, Replication: 1},
		Shard: &pb.ShardSpec{DsnFile: "/nowhere/app", ReaderDsnFile: "/nowhere/reader", FencerDsnFile: "/nowhere/fencer"},
	}})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("provisioning without a shard: %v", err)
	}
	got, err := sre.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"})
	if err != nil || got.GetCell().GetState() != pb.CellState_CELL_STATE_PROVISIONED || got.GetCell().GetShardReachable() {
		t.Errorf("the cell is %v, %v; want PROVISIONED until its shard has the fence row", got, err)
	}
	if _, err := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-9", OperationId: "op", Reason: "r"}); rpcstatus.Reason(err) != "UNKNOWN_CELL" {
		t.Errorf("fencing an unknown cell: %v", err)
	}
	link, err := dial(t, r, client.Options{Workload: "cell/cell-9"}).CellLink.Link(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: &pb.Hello{CellId: "cell-9", InstanceId: "i", InstanceGroup: "a", AdvertiseAddress: "127.0.0.1:9"}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := link.Recv(); err != nil || m.GetRefusal().GetCode() != pb.RefusalCode_REFUSAL_CODE_UNKNOWN_CELL {
		t.Errorf("an unknown cell says hello: %v, %v", m, err)
	}
	resp, err := http.Get(r.metrics.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	metrics, _ := io.ReadAll(resp.Body)
	for _, name := range []string{"cellquota_view_age_seconds", "cellquota_build_info", "cellquota_view_quarantined_records 0"} {
		if !strings.Contains(string(metrics), name) {
			t.Errorf("no metric %s", name)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("the replica did not drain: %v", err)
	}
}

// Two replicas: one leads, both serve, and the other follows when it is gone.
func TestTwoReplicas(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	a, stop := replica(t, etcd)
	ready(t, a)
	b, _ := replica(t, etcd)
	ready(t, b)
	second := dial(t, b, client.Options{Token: "token"})
	term := func() (int64, error) {
		st, err := second.Reports.GetStatus(testkit.Deadline(t), &pb.GetStatusRequest{})
		return st.GetTerm().GetCount(), err
	}
	if n, err := term(); err != nil || n != 1 {
		t.Fatalf("term %d, %v", n, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		n, err := term()
		if err == nil && n != 2 {
			err = fmt.Errorf("term %d", n)
		}
		return err
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := config.Load[Config]([]string{"--lease-ttl", "10ms", "--etcd-prefix", "/"}, config.Options{Environ: []string{"CELLQUOTA_LEASE_TTLS=1s"}})
	for _, key := range []string{"lease_ttl", "etcd.prefix", "etcd.endpoints", "operators_file", "tls.cert_file", "LEASE_TTLS"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("the faults do not name %s: %v", key, err)
		}
	}
}
