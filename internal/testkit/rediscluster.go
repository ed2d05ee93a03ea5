package testkit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const redisSlots = 16384

// RedisNodes is a Redis Cluster. Masters and Replicas are the roles of the start;
// replica i follows master i.
type RedisNodes struct {
	Masters, Replicas []*RedisServer
}

// RedisCluster starts a cluster of so many masters, among whom the slots are shared in
// order, and replicas for the first of them. A node that is silent for a second counts
// as dead.
func RedisCluster(t testing.TB, masters, replicas int, args ...string) *RedisNodes {
	t.Helper()
	n := &RedisNodes{}
	for i := range masters + replicas {
		s := newRedis(t)
		s.args = s.plainArgs(append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(leaseFor(t).number), "--cluster-node-timeout", "1000",
			"--cluster-replica-validity-factor", "0",
		}, args...)...)
		s.Start(t)
		if i < masters {
			n.Masters = append(n.Masters, s)
		} else {
			n.Replicas = append(n.Replicas, s)
		}
	}
	for i, s := range n.Masters {
		from, to := i*redisSlots/masters, (i+1)*redisSlots/masters-1
		mustDo(t, s.Client(t), "CLUSTER", "ADDSLOTSRANGE", from, to)
	}
	n.join(t)
	for i, s := range n.Replicas {
		id := n.Masters[i].Client(t).ClusterMyID(t.Context()).Val()
		c := s.Client(t)
		Eventually(t, redisReady, func() error { return c.ClusterReplicate(t.Context(), id).Err() })
	}
	n.agreed(t)
	return n
}

// join introduces every node to the first.
func (n *RedisNodes) join(t testing.TB) {
	t.Helper()
	first := n.Masters[0]
	c := first.Client(t)
	for _, s := range n.all()[1:] {
		bus := s.args[indexOf(s.args, "--cluster-port")+1]
		mustDo(t, c, "CLUSTER", "MEET", "127.0.0.1", s.port.number, bus)
	}
}

// agreed waits until every node serves and knows every other and its role.
func (n *RedisNodes) agreed(t testing.TB) {
	t.Helper()
	for _, s := range n.all() {
		c := s.Client(t)
		Eventually(t, 2*redisReady, func() error {
			info, err := c.ClusterInfo(t.Context()).Result()
			if err != nil {
				return err
			}
			nodes, err := c.ClusterNodes(t.Context()).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || strings.Count(nodes, "slave") != len(n.Replicas) ||
				strings.Count(nodes, " connected") != len(n.all()) || strings.Contains(nodes, "handshake") {
				return fmt.Errorf("%s\n%s", info, nodes)
			}
			return nil
		})
	}
}

func (n *RedisNodes) all() []*RedisServer {
	return append(append([]*RedisServer(nil), n.Masters...), n.Replicas...)
}

// Addrs are the addresses of the masters.
func (n *RedisNodes) Addrs() []string { return addrsOf(n.Masters) }

// Holder is the master of the start that has a key's slot.
func (n *RedisNodes) Holder(t testing.TB, key string) *RedisServer {
	t.Helper()
	slot, err := n.Masters[0].Client(t).ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n.Masters[min(int(slot)*len(n.Masters)/redisSlots, len(n.Masters)-1)]
}

// AwaitPromoted waits until replica i is a master that serves.
func (n *RedisNodes) AwaitPromoted(t testing.TB, i int) {
	t.Helper()
	c := n.Replicas[i].Client(t)
	Eventually(t, 2*redisReady, func() error {
		role, err := c.Do(t.Context(), "ROLE").Slice()
		if err != nil {
			return err
		}
		info, err := c.ClusterInfo(t.Context()).Result()
		if err == nil && (role[0] != "master" || !strings.Contains(info, "cluster_state:ok")) {
			err = errors.New("it is " + fmt.Sprint(role[0]) + ", " + info)
		}
		return err
	})
}

// Client is a client of the whole cluster, closed when the test ends.
func (n *RedisNodes) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: n.Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func indexOf(list []string, want string) int {
	for i, s := range list {
		if s == want {
			return i
		}
	}
	return -1
}

// MoveSlot moves a key's slot with all its keys from one master of the start to another, as
// `redis-cli --cluster reshard` does.
func (n *RedisNodes) MoveSlot(t testing.TB, key string, from, to int) {
	t.Helper()
	src, dst := n.Masters[from].Client(t), n.Masters[to].Client(t)
	slot := src.ClusterKeySlot(t.Context(), key).Val()
	srcID, dstID := src.ClusterMyID(t.Context()).Val(), dst.ClusterMyID(t.Context()).Val()
	mustDo(t, dst, "CLUSTER", "SETSLOT", slot, "IMPORTING", srcID)
	mustDo(t, src, "CLUSTER", "SETSLOT", slot, "MIGRATING", dstID)
	for {
		keys, err := src.ClusterGetKeysInSlot(t.Context(), int(slot), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", "127.0.0.1", n.Masters[to].port.number, "", 0, 5000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}
		mustDo(t, src, args...)
	}
	for _, c := range []*redis.Client{dst, src} {
		mustDo(t, c, "CLUSTER", "SETSLOT", slot, "NODE", dstID)
	}
}
