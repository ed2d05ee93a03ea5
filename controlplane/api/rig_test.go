package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/api"
	"github.com/cellquota/cellquota/controlplane/check"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// rig is the services over a real etcd, called through the real client over
// bufconn with the real chain of interceptors.
type rig struct {
	t      *testing.T
	etcd   *testkit.EtcdCluster
	store  *store.Store
	view   *view.View
	routes *api.Routes
	shards *shards
	kafka  *testkit.KafkaCluster
	wire   *bufconn.Listener
	acks   chan struct{}
	hands  *hands

	// secrets is the control plane's secrets_dir.
	secrets string

	cellKeys cellKeys
	supply   *planned
}

// hands is the system's clock, which a test puts forward.
type hands struct {
	clock.Clock
	ahead atomic.Int64
}

func (h *hands) Now() time.Time { return h.Clock.Now().Add(time.Duration(h.ahead.Load())) }

func (h *hands) Advance(d time.Duration) { h.ahead.Add(int64(d)) }

// shards is the fake of the cells' PostgreSQL.
type shards struct {
	mu                  sync.Mutex
	version             int64
	err                 error
	installed           []ids.CellID
	confirmed, reserved int64 // of each, by Stock
}

func (s *shards) sold(confirmed, reserved int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed, s.reserved = confirmed, reserved
}

// Stock implements quota.Shards.
func (s *shards) Stock(_ context.Context, _ core.CellSpec, key core.BookKey) (core.StockFacts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return core.StockFacts{Key: key, Confirmed: quantity.Must(s.confirmed), Reserved: quantity.Must(s.reserved)}, nil
}

func (s *shards) Install(_ context.Context, spec core.CellSpec) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.installed = append(s.installed, spec.ID)
	return s.version, nil
}

func (s *shards) Held(_ context.Context, _ core.CellSpec) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.err
}

func (s *shards) Reachable(_ context.Context, spec core.CellSpec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.ID == "cell-2" {
		return fmt.Errorf("connection refused")
	}
	return s.err
}

// hub is the fake of the cells' streams; cell-1 reported 77 units under fence version 1.
type hub struct{}

func (hub) Process(_ ids.CellID, instance string) (time.Duration, bool, []string, bool) {
	return 3 * time.Second, instance == "p1", []string{"redis"}, true
}

func (hub) Reported(cell ids.CellID, from int64) (age time.Duration, atRisk int64, ok bool) {
	if from <= 1 {
		atRisk = 77
	}
	return 250 * time.Millisecond, atRisk, cell == "cell-1"
}

func newRig(t *testing.T) *rig { t.Helper(); return newRigIn(t, "") }

// newRigIn is a rig with a secrets_dir.
func newRigIn(t *testing.T, secrets string) *rig {
	t.Helper()
	etcd := testkit.Etcd(t, 1)
	r := &rig{t: t, secrets: secrets, etcd: etcd, shards: &shards{version: 1}, kafka: testkit.Kafka(t, 1), wire: bufconn.Listen(1 << 20), acks: make(chan struct{}, 64), hands: &hands{Clock: clock.System()}, cellKeys: cellKeys{}, supply: &planned{}}
	var err error
	if r.store, err = store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: r.hands}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	if r.view, err = view.New(r.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := rpcstatus.Register(api.Kinds()...); err != nil {
		t.Fatal(err)
	}
	r.serve()
	return r
}

func (r *rig) serve() {
	operators, err := access.LoadOperators(operatorsFile(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	verbs := &intent.Service{Store: r.store, View: r.view, Clock: clock.System(), Shards: r.shards, Topics: topics.Kafka{}}
	r.routes = &api.Routes{View: r.view, Memory: time.Minute, Clock: r.hands, Acked: func() {
		select {
		case r.acks <- struct{}{}:
		default:
		}
	}}
	server := transport.NewServer(transport.ServerOptions{
		Log: slog.New(slog.DiscardHandler), Dev: true, Authorizer: access.Authorize, MaxSend: transport.MaxSnapshot,
		Authenticator: transport.FirstOf(operators.Authenticate, access.Tokens{View: r.view, Clock: r.hands}.Authenticate, transport.DevWorkloads()),
	})
	pb.RegisterCellAdminServiceServer(server, &api.Cells{
		Intent: verbs, View: r.view, Liveness: hub{}, Shards: r.shards, SecretsDir: r.secrets, Checker: check.New(check.Config{}, clock.System()),
		Dial: func(addr string) (*grpc.ClientConn, error) {
			return transport.Dial(addr, transport.DialOptions{Dev: true})
		},
	})
	pb.RegisterCampaignServiceServer(server, &api.Campaigns{Intent: verbs, View: r.view, Clock: clock.System(), Shards: r.shards})
	pb.RegisterQuotaServiceServer(server, &api.Quota{Intent: verbs, View: r.view, Supply: r.supply})
	pb.RegisterAccessServiceServer(server, &api.Access{Intent: verbs, View: r.view, Routes: r.routes, Cells: r.cellKeys})
	pb.RegisterRoutingServiceServer(server, r.routes)
	pb.RegisterOperationServiceServer(server, &api.Operations{Intent: verbs, Reader: operation.Reader{View: r.view}})
	go func() { _ = server.Serve(r.wire) }()
	r.t.Cleanup(server.Stop)
}

// operatorsFile has one operator per role whose token is the role's name.
func operatorsFile(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("operators:\n")
	for _, role := range access.Roles() {
		digest := sha256.Sum256([]byte(role))
		fmt.Fprintf(&text, "- {name: %s-ann, role: %s, token_sha256: %s, regions: [east]}\n", role, role, hex.EncodeToString(digest[:]))
	}
	path := filepath.Join(t.TempDir(), "operators.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// as dials as an operator of a role, or as a process ("edge/e1").
func (r *rig) as(who string) *client.Client {
	r.t.Helper()
	o := client.Options{Addrs: []string{"bufconn"}, Dev: true, Timeout: 20 * time.Second, Token: who}
	if strings.Contains(who, "/") {
		o.Token, o.Workload = "", who
	}
	o.Dial = func(d *transport.DialOptions) {
		d.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return r.wire.DialContext(ctx) }
	}
	c, err := client.Dial(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) cell(n int) *pb.CellSpec {
	return &pb.CellSpec{
		CellId: fmt.Sprintf("cell-%d", n), Region: "east", InstanceGroup: "a", Weight: 1, Redis: &pb.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
		Kafka: &pb.KafkaSpec{Brokers: r.kafka.Brokers(), Topic: fmt.Sprintf("cellquota.admissions.cell-%d", n), Partitions: 1, Replication: 1},
		Shard: &pb.ShardSpec{DsnFile: "app", ReaderDsnFile: "reader", FencerDsnFile: fmt.Sprint("fencer-", n)},
	}
}

func (r *rig) provision(n int) {
	r.t.Helper()
	sre := r.as(access.SRE)
	for i := range n {
		if _, err := sre.Cells.CreateCell(testkit.Deadline(r.t), &pb.CreateCellRequest{Spec: r.cell(i + 1), OperationId: fmt.Sprint("p", i)}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// campaignYAML is on sale now, over n cells.
func campaignYAML(id string, n int) string {
	var cells []string
	for i := range n {
		cells = append(cells, fmt.Sprintf("cell-%d", i+1))
	}
	now := time.Now().UTC()
	return fmt.Sprintf(`apiVersion: cellquota/v1
kind: Campaign
campaign_id: %s
open_at: %s
close_at: %s
refund_rule: NO_RESTOCK
skus:
- sku_id: phone-x
  physical_stock: 12000
  sale_limit: 10000
  reserve: 400
  price: {amount: "4999.00", currency: CNY}
cells: [%s]
`, id, now.Add(-time.Minute).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339), strings.Join(cells, ", "))
}

// book writes a published campaign as the planner would, so that quota calls have
// something to move.
func (r *rig) book(id ids.CampaignID) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "book", func(tx *store.Tx) error {
		campaign, _, err := tx.Campaign(id)
		if err != nil {
			return err
		}
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		key := campaign.Key("phone-x")
		split, err := campaign.Spec.Preview(cells)
		if err != nil {
			return err
		}
		book, _, err := core.NewBook(key, split.Plans[0], cells)
		if err != nil {
			return err
		}
		if _, _, err := tx.Book(key); err != nil {
			return err
		}
		if _, _, err := tx.Route(id); err != nil {
			return err
		}
		campaign.State, campaign.Version, campaign.BookedSKUs = core.CampaignPublished, campaign.Version+2, []ids.SKUID{"phone-x"}
		if err := tx.PutCampaign(campaign); err != nil {
			return err
		}
		if err := tx.PutRoute(core.Route{Campaign: id, Version: 1, Domains: split.Domains}); err != nil {
			return err
		}
		if _, _, err := tx.Stock(key.SKU); err != nil {
			return err
		}
		stock, _, err := core.PhysicalStock{}.Take(key.SKU, id, campaign.Spec.SKUs[0].PhysicalStock, book.SaleLimit)
		if err != nil {
			return err
		}
		return errors.Join(tx.PutStock(stock), tx.PutBook(book.Stamp("publish")))
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.caughtUp()
}

// alive registers a process of every cell under a lease; a cell without one is SUSPECT.
func (r *rig) alive() {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	leader := r.leader()
	for _, c := range r.view.Snapshot().Cells() {
		lease, err := r.store.GrantLease(ctx, time.Minute)
		if err == nil {
			_, err = r.store.Register(ctx, leader, core.Instance{Cell: c.Spec.ID, ID: "alive", Group: "a", Lease: lease}, func(core.Cell) error { return nil })
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.caughtUp()
}

// caughtUp waits until the view is at etcd's head.
func (r *rig) caughtUp() {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	head, err := r.store.Head(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.view.WaitFor(ctx, head); err != nil {
		r.t.Fatal(err)
	}
}
