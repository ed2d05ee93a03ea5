package testkit

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sync/errgroup"
)

const (
	etcdReady = 30 * time.Second
	// Heartbeats of 50 ms and elections of 500 ms: fast enough for tests that
	// kill leaders, and the smallest lease TTL that etcd then grants is 1 s.
	etcdTickMillis     = 50
	etcdElectionMillis = 500
)

// EtcdCluster is a real etcd cluster of one test; its members are embedded in the
// test binary and listen on loopback.
type EtcdCluster struct {
	members []*etcdMember
}

type etcdMember struct {
	config *embed.Config
	server *embed.Etcd // nil while stopped
}

// Etcd starts a cluster of so many members (1 or 3) and waits until it has a
// leader. It is gone when the test ends.
func Etcd(t testing.TB, members int) *EtcdCluster {
	t.Helper()
	return EtcdWith(t, members, func(*embed.Config) {})
}

// EtcdWith is Etcd with members whose configuration was changed, each before its
// first start: a small quota, compaction by itself.
func EtcdWith(t testing.TB, members int, change func(*embed.Config)) *EtcdCluster {
	t.Helper()
	if members < 1 {
		t.Fatalf("an etcd cluster has at least one member, not %d", members)
	}
	c := &EtcdCluster{}
	var initial []string
	for i := range members {
		m := &etcdMember{config: etcdConfig(t, i)}
		change(m.config)
		c.members = append(c.members, m)
		initial = append(initial, fmt.Sprintf("%s=%s", m.config.Name, m.config.AdvertisePeerUrls[0].String()))
	}
	for _, m := range c.members {
		m.config.InitialClusterToken = c.members[0].config.Dir // no other cluster's
		m.config.InitialCluster = strings.Join(initial, ",")
		t.Cleanup(m.stop)
	}
	// A member is ready when the cluster has a leader, so all start at once.
	var all errgroup.Group
	for _, m := range c.members {
		all.Go(m.start)
	}
	if err := all.Wait(); err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	return c
}

func etcdConfig(t testing.TB, i int) *embed.Config {
	t.Helper()
	peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
	config := embed.NewConfig()
	config.Name = fmt.Sprintf("m%d", i)
	config.Dir = t.TempDir()
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.TickMs, config.ElectionMs = etcdTickMillis, etcdElectionMillis
	config.UnsafeNoFsync = true
	config.LogLevel = "fatal" // it logs errors of its own closing otherwise
	return config
}

// Endpoints are the client addresses of all members, stopped ones included.
func (c *EtcdCluster) Endpoints() []string {
	endpoints := make([]string, len(c.members))
	for i := range c.members {
		endpoints[i] = c.Endpoint(i)
	}
	return endpoints
}

// Endpoint is the client address host:port of member i, from 0.
func (c *EtcdCluster) Endpoint(i int) string { return c.members[i].config.AdvertiseClientUrls[0].Host }

// DataDir is where member i, from 0, keeps its data; copy it while the member is
// stopped to make a backup, and back to restore one.
func (c *EtcdCluster) DataDir(i int) string { return c.members[i].config.Dir }

// Leader is the index of the member that leads now, or −1.
func (c *EtcdCluster) Leader() int {
	for i, m := range c.members {
		if m.server != nil && m.server.Server.Leader() == m.server.Server.MemberID() {
			return i
		}
	}
	return -1
}

// Stop closes member i; its data stays.
func (c *EtcdCluster) Stop(t testing.TB, i int) { t.Helper(); c.members[i].stop() }

// Start starts member i again on the same addresses and data, and waits until it
// has joined a cluster with a leader (so a majority must be running).
func (c *EtcdCluster) Start(t testing.TB, i int) {
	t.Helper()
	if err := c.members[i].start(); err != nil {
		t.Fatalf("start etcd member %d again: %v", i, err)
	}
}

// Client is a new client of all members, closed when the test ends.
func (c *EtcdCluster) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: etcdReady, Context: t.Context()})
	if err != nil {
		t.Fatalf("client of etcd: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Compact compacts the history up to the newest revision, which it returns: every
// watch from an earlier revision fails from now on.
func (c *EtcdCluster) Compact(t testing.TB) int64 {
	t.Helper()
	client, ctx := c.Client(t), Deadline(t)
	now, err := client.Get(ctx, "any key", clientv3.WithCountOnly())
	if err != nil {
		t.Fatalf("read etcd's revision: %v", err)
	}
	if _, err := client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("compact etcd at revision %d: %v", now.Header.Revision, err)
	}
	return now.Header.Revision
}

func (m *etcdMember) start() error {
	if m.server != nil {
		return fmt.Errorf("member %s is running", m.config.Name)
	}
	config := *m.config // StartEtcd completes its copy
	server, err := embed.StartEtcd(&config)
	if err != nil {
		return fmt.Errorf("member %s: %w", m.config.Name, err)
	}
	m.server = server
	timer := time.NewTimer(etcdReady)
	defer timer.Stop()
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("member %s: %w", m.config.Name, err)
	case <-timer.C:
		return fmt.Errorf("member %s was not ready within %s", m.config.Name, etcdReady)
	}
}

func (m *etcdMember) stop() {
	if m.server == nil {
		return
	}
	m.server.Close()
	m.server = nil
}
