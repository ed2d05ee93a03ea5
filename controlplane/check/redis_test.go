package check_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/testkit"
)

// What stands against a failover is named before there is one: a primary without a replica, one that may
// go on alone although it has two (K50), sentinels that are away or know no such master.
func TestSentinelsAreLookedAt(t *testing.T) {
	p := newPlant(t)
	p.cfg.Timeout = 2 * time.Second
	g := testkit.RedisReplicated(t, 1, "--appendonly", "yes")
	p.s.Spec.Redis = core.RedisSpec{
		Mode: "sentinel", Addrs: g.Addrs(), PasswordFile: p.file("redis", testkit.RedisPassword), MasterName: testkit.RedisMaster,
	}
	const master = "redis master " + testkit.RedisMaster + " "
	p.one()
	host, port, _ := strings.Cut(g.Primary.Addr(), ":")
	second := testkit.Redis(t, "--appendonly", "yes", "--masterauth", testkit.RedisPassword, "--replicaof", host, port)
	replicas := func(n int) {
		t.Helper()
		testkit.Eventually(t, 20*time.Second, func() error {
			info, err := g.Primary.Client(t).InfoMap(p.ctx, "replication").Result()
			if err == nil && info["Replication"]["connected_slaves"] != fmt.Sprint(n) {
				err = fmt.Errorf("%v", info)
			}
			return err
		})
	}
	replicas(2)
	p.one(master + "min-replicas-to-write")
	if err := g.Primary.Client(t).ConfigSet(p.ctx, "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	p.one()
	second.Kill(t)
	g.Replica.Kill(t)
	replicas(0)
	p.one(master + "replicas")
	p.s.Spec.Redis.MasterName = "another"
	p.one("sentinel "+g.Addrs()[0], "redis master another")
}

func TestClusterIsLookedAt(t *testing.T) {
	p := newPlant(t)
	n := testkit.RedisCluster(t, 2, 0, "--appendonly", "yes")
	p.s.Spec.Redis = core.RedisSpec{Mode: "cluster", Addrs: n.Addrs()[:1]} // the other is learnt from it
	p.one()
	if err := n.Masters[1].Client(t).ConfigSet(p.ctx, "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	p.one("redis " + n.Masters[1].Addr() + " maxmemory-policy")
}
