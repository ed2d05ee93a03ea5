package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

const quota = 16 << 20

// small is an etcd of 16 MiB that keeps its history for a second, and a store on it.
func small(t *testing.T) (*testkit.EtcdCluster, *store.Store) {
	t.Helper()
	etcd := testkit.EtcdWith(t, 1, func(c *embed.Config) {
		c.QuotaBackendBytes = quota
		c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "1s"
	})
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return etcd, s
}

func touch(t *testing.T, s *store.Store, address string) error {
	t.Helper()
	lease, err := s.GrantLease(t.Context(), time.Minute)
	if err != nil {
		return err
	}
	return s.RegisterReplica(testkit.Deadline(t), core.Replica{Address: address, Lease: lease})
}

// K45: a heartbeat each 100 ms, of however many processes, writes nothing: a lease is
// kept in memory. What is written over and over does not fill etcd either.
func TestHeartbeatsDoNotFillEtcd(t *testing.T) {
	etcd, s := small(t)
	client, ctx := etcd.Client(t), testkit.Deadline(t)
	var leases []int64
	for range 20 {
		lease, err := s.GrantLease(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	revision := func() int64 {
		got, err := client.Get(ctx, "/cellquota/any", clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return got.Header.Revision
	}
	before := revision()
	for range 50 {
		for _, lease := range leases {
			if _, err := s.KeepLease(ctx, lease); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := revision(); after != before {
		t.Errorf("1,000 heartbeats made %d revisions", after-before)
	}
	// 32 MiB of changes to one key, twice the quota, over a few compactions.
	value := strings.Repeat("x", 256<<10)
	for i := range 128 {
		if _, err := client.Put(ctx, "/cellquota/over-and-over", value); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if i%12 == 11 {
			testkit.Hold(t, 1100*time.Millisecond, "one interval of compaction")
		}
	}
	if size, full, err := s.Space(ctx); err != nil || full || size == 0 || size > quota {
		t.Errorf("size %d of %d, NOSPACE %v, %v", size, quota, full, err)
	}
}

// K45: with the alarm raised every write is refused by name and did nothing, reads
// and leases go on, and after room was made and the alarm disarmed so do writes.
func TestNoSpaceIsNamedAndEnds(t *testing.T) {
	etcd, s := small(t)
	client, ctx := etcd.Client(t), testkit.Deadline(t)
	lease, err := s.GrantLease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 1<<20)
	for i := 0; err == nil; i++ {
		if i > 64 {
			t.Fatal("64 MiB fit into 16")
		}
		_, err = client.Put(ctx, fmt.Sprintf("/other/%d", i), value)
	}
	for what, err := range map[string]error{
		"a change":    s.RegisterReplica(ctx, core.Replica{Address: "127.0.0.1:2", Lease: lease}),
		"a new lease": touch(t, s, "127.0.0.1:3"),
	} {
		if !errors.Is(err, core.ErrStoreFull) || !errors.Is(err, core.ErrStoreUnavailable) || errors.Is(err, core.ErrUnknownOutcome) || !strings.Contains(err.Error(), "NOSPACE") {
			t.Errorf("%s under NOSPACE: %v", what, err)
		}
	}
	if _, full, err := s.Space(ctx); err != nil || !full {
		t.Errorf("NOSPACE is not seen: %v, %v", full, err)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("a read: %v", err)
	}
	if _, err := s.KeepLease(ctx, lease); err != nil {
		t.Errorf("a lease that lives: %v", err)
	}

	// An operator makes room.
	if _, err := client.Delete(ctx, "/other/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t)
	if _, err := client.Defragment(ctx, etcd.Endpoint(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if err := touch(t, s, "127.0.0.1:4"); err != nil {
		t.Errorf("after the alarm: %v", err)
	}
	if _, full, err := s.Space(ctx); err != nil || full {
		t.Errorf("NOSPACE after it was disarmed: %v, %v", full, err)
	}
}
