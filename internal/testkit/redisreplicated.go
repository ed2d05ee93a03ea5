package testkit

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisMaster is the name under which sentinels of this package watch a primary.
const RedisMaster = "cellquota"

// RedisPassword is asked for by the servers behind sentinels.
const RedisPassword = "of a test"

// sentinelUser is the user of the sentinels on both servers, so that a test can keep them out.
const sentinelUser = "sentinel"

// RedisGroup is a primary with a replica and real sentinels that watch them. Primary
// and Replica are the roles of the start, whatever a failover made of them.
type RedisGroup struct {
	Primary, Replica *RedisServer
	Sentinels        []*RedisServer
}

// RedisReplicated starts a primary, a replica that has caught up, and so many
// sentinels, most of whom must agree that the primary is down. They notice after
// half a second.
func RedisReplicated(t testing.TB, sentinels int, args ...string) *RedisGroup {
	t.Helper()
	user := []string{"--user", sentinelUser, "on", ">sentinel", "~*", "&*", "+@all", "--requirepass", RedisPassword, "--masterauth", RedisPassword}
	g := &RedisGroup{Primary: newRedis(t), Replica: newRedis(t)}
	g.Primary.password, g.Replica.password = RedisPassword, RedisPassword
	g.Primary.args = g.Primary.plainArgs(append(user, args...)...)
	g.Primary.Start(t)
	g.Replica.args = g.Replica.plainArgs(append(append(user, "--replicaof", "127.0.0.1", strconv.Itoa(g.Primary.port.number)), args...)...)
	g.Replica.Start(t)
	g.CaughtUp(t)
	for range sentinels {
		s := newRedis(t)
		conf := s.home.path("sentinel.conf")
		if err := os.WriteFile(conf, []byte(g.sentinelConf(s, sentinels)), 0o600); err != nil {
			t.Fatal(err)
		}
		s.args = []string{conf, "--sentinel"}
		s.Start(t)
		g.Sentinels = append(g.Sentinels, s)
	}
	for _, s := range g.Sentinels { // each knows the replica and the others: a failover can be voted on
		Eventually(t, redisReady, func() error {
			facts, err := s.sentinel(t).Master(t.Context(), RedisMaster).Result()
			if err == nil && (facts["num-slaves"] != "1" || facts["num-other-sentinels"] != strconv.Itoa(sentinels-1)) {
				err = fmt.Errorf("sentinel knows %s replicas and %s other sentinels", facts["num-slaves"], facts["num-other-sentinels"])
			}
			return err
		})
	}
	return g
}

func (g *RedisGroup) sentinelConf(s *RedisServer, sentinels int) string {
	lines := []string{
		"port " + strconv.Itoa(s.port.number), "bind 127.0.0.1", fmt.Sprintf("dir %q", s.home.dir), "daemonize no",
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", RedisMaster, g.Primary.port.number, sentinels/2+1),
		"sentinel down-after-milliseconds " + RedisMaster + " 500", "sentinel failover-timeout " + RedisMaster + " 3000",
		"sentinel auth-user " + RedisMaster + " " + sentinelUser, "sentinel auth-pass " + RedisMaster + " " + sentinelUser,
	}
	return strings.Join(lines, "\n") + "\n"
}

// sentinel is a client of a sentinel, closed when the test ends.
func (s *RedisServer) sentinel(t testing.TB) *redis.SentinelClient {
	t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Addrs are the addresses of the sentinels.
func (g *RedisGroup) Addrs() []string { return addrsOf(g.Sentinels) }

func addrsOf(servers []*RedisServer) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.Addr())
	}
	return out
}

// CaughtUp waits until the replica has everything that the primary has.
func (g *RedisGroup) CaughtUp(t testing.TB) {
	t.Helper()
	primary, replica := g.Primary.Client(t), g.Replica.Client(t)
	Eventually(t, redisReady, func() error {
		p, err := primary.InfoMap(t.Context(), "replication").Result()
		if err != nil {
			return err
		}
		r, err := replica.InfoMap(t.Context(), "replication").Result()
		if err != nil {
			return err
		}
		have, want := r["Replication"], p["Replication"]
		if have["master_link_status"] != "up" || have["slave_repl_offset"] != want["master_repl_offset"] {
			return fmt.Errorf("link %s, offset %s of %s", have["master_link_status"], have["slave_repl_offset"], want["master_repl_offset"])
		}
		return nil
	})
}

// CutReplica ends replication at this moment: what the primary takes from now on is in
// no replica. The replica stays reachable, and can be promoted.
func (g *RedisGroup) CutReplica(t testing.TB) {
	t.Helper()
	g.CaughtUp(t)
	c := g.Replica.Client(t)
	mustDo(t, c, "CONFIG", "SET", "masterauth", "refused")
	mustDo(t, c, "CLIENT", "KILL", "TYPE", "master")
}

// HidePrimary keeps the sentinels away from the primary, which serves everybody else as
// before: they take it for dead and promote the replica (K50).
func (g *RedisGroup) HidePrimary(t testing.TB) {
	t.Helper()
	c := g.Primary.Client(t)
	mustDo(t, c, "ACL", "SETUSER", sentinelUser, "off")
	mustDo(t, c, "CLIENT", "KILL", "USER", sentinelUser)
}

// ShowPrimary undoes HidePrimary.
func (g *RedisGroup) ShowPrimary(t testing.TB) {
	t.Helper()
	mustDo(t, g.Primary.Client(t), "ACL", "SETUSER", sentinelUser, "on")
}

// AwaitPromoted waits until the replica is a primary and every sentinel says so.
func (g *RedisGroup) AwaitPromoted(t testing.TB) {
	t.Helper()
	for _, s := range g.Sentinels {
		c := s.sentinel(t)
		Eventually(t, 2*redisReady, func() error {
			addr, err := c.GetMasterAddrByName(t.Context(), RedisMaster).Result()
			if err == nil && net.JoinHostPort(addr[0], addr[1]) != g.Replica.Addr() {
				err = fmt.Errorf("the sentinel names %v", addr)
			}
			return err
		})
	}
}

func mustDo(t testing.TB, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(context.WithoutCancel(t.Context()), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}
