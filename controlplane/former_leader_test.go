package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// halt stops a replica as SIGSTOP does, at an exact point: right before the first
// transaction that changes matching keys is sent. From then on nothing of it reaches
// etcd and no timer of its loops fires.
type halt struct {
	clientv3.KV
	matches string // part of a key that the transaction puts or deletes
	clock   *clock.Manual

	reached, released, answered chan struct{}
	once                        sync.Once
	mu                          sync.Mutex
	stopped, former             bool
	first                       string   // what the held transaction came to
	broke                       []string // keys that this replica changed after it was released
}

func newHalt(matches string) *halt {
	return &halt{
		matches: matches, clock: clock.NewManual(time.Now()),
		reached: make(chan struct{}), released: make(chan struct{}), answered: make(chan struct{}),
	}
}

// tick moves the replica's time with the machine's, but not while it is stopped.
func (h *halt) tick(ctx context.Context) {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !h.is(&h.stopped) {
			h.clock.Advance(every)
		}
	}
}

func (h *halt) is(flag *bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *flag
}

func (h *halt) set(flag *bool, to bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*flag = to
}

// Txn implements clientv3.KV.
func (h *halt) Txn(ctx context.Context) clientv3.Txn { return &haltedTxn{Txn: h.KV.Txn(ctx), h: h} }

// Get implements clientv3.KV: a stopped process reads nothing.
func (h *halt) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if h.is(&h.stopped) {
		<-h.released
	}
	return h.KV.Get(ctx, key, opts...)
}

type haltedTxn struct {
	clientv3.Txn
	h    *halt
	keys []string // that it changes
}

func (t *haltedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }
func (t *haltedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t *haltedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		if op.IsPut() || op.IsDelete() {
			t.keys = append(t.keys, string(op.KeyBytes()))
		}
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *haltedTxn) Commit() (*clientv3.TxnResponse, error) {
	h, mine := t.h, false
	if strings.Contains(strings.Join(t.keys, " "), h.matches) {
		h.once.Do(func() {
			mine = true
			h.set(&h.stopped, true)
			close(h.reached)
		})
	}
	if h.is(&h.stopped) {
		<-h.released
	}
	resp, err := t.Txn.Commit()
	h.mu.Lock()
	if h.former && err == nil && resp.Succeeded {
		h.broke = append(h.broke, t.keys...)
	}
	h.mu.Unlock()
	if mine {
		h.first = fmt.Sprintf("%v %v", err == nil && resp.Succeeded, err)
		close(h.answered)
	}
	return resp, err
}

// stoppable runs a whole replica, every loop of it, that halt stops.
func stoppable(t *testing.T, etcd *testkit.EtcdCluster, h *halt, change func(*Config)) *running {
	t.Helper()
	cfg, err := config.Load[Config]([]string{
		"--dev", "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), "--metrics-addr", "127.0.0.1:0", "--etcd-endpoints", strings.Join(etcd.Endpoints(), ","),
		"--operators-file", operatorsFileOf(t, operators()), "--leader-ttl", "1s", "--lease-ttl", "1s", "--etcd-timeout", "40s",
	}, config.Options{Program: "cellquotad controlplane", Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	group := lifecycle.New(ctx, log)
	p := parts{cfg: cfg, log: log, clock: h.clock, registry: telemetry.NewRegistry(), tune: func(d *store.Deps) {
		d.KV = func(kv clientv3.KV) clientv3.KV { h.KV = kv; return h }
	}}
	r, err := p.assemble(group, nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { h.tick(ctx) })
	all.Go(func() { _ = group.Wait(cfg.ShutdownGrace) })
	t.Cleanup(func() { cancel(); all.Wait() })
	return r
}

// kinds are the writes of a leader's loops. The scene makes the leader want to write;
// etcd's keys with matches are what it is stopped before changing.
var kinds = map[string]struct {
	matches string
	change  func(*Config)
	before  func(t *testing.T, etcd *testkit.EtcdCluster)         // the leader is there
	scene   func(t *testing.T, c *client.Client, leader *running) // once it leads
	acts    string                                                // part of a key that the next leader has to write
}{
	"a publish's route":   {matches: "/routes/c", scene: publish, acts: "/books/c/"},
	"a publish's book":    {matches: "/books/c/", scene: publish, acts: "/books/c/"},
	"an operation's step": {matches: "/operations/publish-c", scene: publish, acts: "/books/c/"},
	"a campaign's close":  {matches: "/campaigns/c", before: overdue, acts: "/campaigns/c"},
	"the audit's delete":  {matches: "/audit/", change: func(c *Config) { c.Audit.Keep = time.Nanosecond }, before: overdue},
	"a process's lease":   {matches: "/instances/cell-1", scene: hello},
}

func publish(t *testing.T, c *client.Client, _ *running) {
	t.Helper()
	ctx := testkit.Deadline(t)
	if _, err := c.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: saleYAML("c", time.Hour, "cell-1"), OperationId: "create-c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Campaigns.PublishCampaign(ctx, &pb.PublishCampaignRequest{CampaignId: "c", OperationId: "publish-c"}); err != nil {
		t.Fatal(err)
	}
}

// overdue is a campaign on sale whose window is over, with its audit.
func overdue(t *testing.T, etcd *testkit.EtcdCluster) {
	t.Helper()
	a, stop := replicaFor(t, etcd, operators())
	ready(t, a)
	meg := dial(t, a, client.Options{Token: "campaign-manager"})
	if _, err := meg.Campaigns.CreateCampaign(testkit.Deadline(t), &pb.CreateCampaignRequest{Yaml: saleYAML("c", time.Hour, "cell-1"), OperationId: "create-c"}); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	_, err := direct(t, etcd).Update(testkit.Deadline(t), "overdue", func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		if err != nil {
			return err
		}
		c.State, c.Spec.CloseAt = core.CampaignPublished, time.Now().Add(-time.Second)
		return tx.PutCampaign(c)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func hello(t *testing.T, _ *client.Client, leader *running) {
	t.Helper()
	stream, err := dial(t, leader, client.Options{Workload: "cell/cell-1"}).CellLink.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: &pb.Hello{
		CellId: "cell-1", InstanceId: "i-1", InstanceGroup: "a", AdvertiseAddress: "127.0.0.1:9", FenceVersion: 1,
		FenceState: pb.FenceState_FENCE_STATE_ACTIVE, FenceInstanceGroup: "a", ShardIdentity: "s",
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

// A leader is stopped right before a write for longer than its lease lives, another one
// is elected and acts, and the old one goes on where it was: that write, and every one
// after it, changes nothing in etcd.
func TestAFormerLeaderWritesNothing(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			etcd := testkit.Etcd(t, 1)
			putCells(t, etcd, 1)
			if kind.before != nil {
				kind.before(t, etcd)
			}
			h := newHalt(kind.matches)
			a := stoppable(t, etcd, h, kind.change)
			if kind.scene != nil {
				ready(t, a)
				// Through another replica: its own calls write too, and are no loop's.
				b, stop := replicaFor(t, etcd, operators())
				ready(t, b)
				kind.scene(t, dial(t, b, client.Options{Token: "campaign-manager"}), a)
				defer func() { _ = stop() }()
			}
			formerLeader(t, etcd, h, kind.acts)
		})
	}
}

func formerLeader(t *testing.T, etcd *testkit.EtcdCluster, h *halt, acts string) {
	t.Helper()
	ctx, keys := testkit.Deadline(t), etcd.Client(t)
	select {
	case <-h.reached:
	case <-ctx.Done():
		t.Fatal("the leader did not come to that write")
	}
	was, err := keys.Get(ctx, "/cellquota/leader")
	if err != nil || len(was.Kvs) != 1 {
		t.Fatalf("leader before: %v, %v", was, err)
	}
	b, _ := replicaFor(t, etcd, operators())
	ready(t, b)
	testkit.Eventually(t, 20*time.Second, func() error {
		now, err := keys.Get(ctx, "/cellquota/leader")
		if err == nil && (len(now.Kvs) != 1 || bytes.Equal(now.Kvs[0].Value, was.Kvs[0].Value)) {
			err = fmt.Errorf("nobody else leads: %v", now.Kvs)
		}
		if err != nil || acts == "" {
			return err
		}
		all, err := keys.Get(ctx, "/cellquota"+acts, clientv3.WithPrefix())
		if err == nil && (len(all.Kvs) == 0 || all.Kvs[0].ModRevision < now.Kvs[0].CreateRevision) {
			err = fmt.Errorf("the new leader has not written %s", acts)
		}
		return err
	})
	// The process goes on: first what it was about to send, then its timers.
	h.mu.Lock()
	h.stopped, h.former = false, true
	h.mu.Unlock()
	close(h.released)
	select {
	case <-h.answered:
	case <-ctx.Done():
		t.Fatal("the write that was held had no answer")
	}
	if h.first != "false <nil>" {
		t.Errorf("the write that was held: %s, want that its compare was lost", h.first)
	}
	testkit.Hold(t, 500*time.Millisecond, "the old leader's loops do what they like")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range h.broke {
		if !strings.Contains(key, "/replicas/") {
			t.Errorf("after its time the old leader changed %s", key)
		}
	}
}
