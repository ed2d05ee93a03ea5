package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/redisconn"
	"github.com/cellquota/cellquota/internal/secretfile"
)

// minRedis is the oldest Redis with function libraries.
const minRedis = 7

// redis looks at every server that would hold a mirror.
func (c Checker) redis(ctx context.Context, s Subject, p *part) {
	spec := s.Spec.Redis
	dial, ok := c.dialer(ctx, "redis.tls", spec.TLS, spec.Addrs, p)
	if !ok {
		return
	}
	password := ""
	if spec.PasswordFile != "" {
		text, err := secretfile.Read(ctx, spec.PasswordFile)
		if err != nil {
			p.saw("redis.password_file", secretfile.Class(err), false, secretfile.Rule)
			return
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	client, err := redisconn.Open(redisconn.Options{
		Target: redisconn.Target{Mode: spec.Mode, Addrs: spec.Addrs, MasterName: spec.MasterName}, Password: password, Dial: dial,
		ClientName: "cellquota-check", MaxRetries: -1, PoolSize: 2, Timeout: c.cfg.Timeout,
	})
	if err != nil {
		p.saw("redis", err.Error(), false, "must be a target that a cell can dial")
		return
	}
	defer func() { _ = client.Close() }()
	switch spec.Mode {
	case redisconn.Cluster:
		c.cluster(ctx, client, spec, p)
	case redisconn.Sentinel:
		c.sentinels(ctx, client, p)
		c.server(ctx, client, "redis master "+cmp.Or(spec.MasterName, redisconn.DefaultMaster), spec.Mode, p)
	default:
		c.server(ctx, client, "redis "+spec.Addrs[0], spec.Mode, p)
	}
}

// sentinels looks at each of them: a cell follows whichever knows of the last failover, so all must know
// the same master, and there must be a replica that they can promote.
func (c Checker) sentinels(ctx context.Context, client *redisconn.Client, p *part) {
	views := client.Views(ctx)
	for _, v := range views {
		name := "sentinel " + v.Sentinel
		if v.Err != nil {
			p.silent(name, v.Err)
			continue
		}
		same := !slices.ContainsFunc(views, func(o redisconn.View) bool { return o.Err == nil && o.Master != v.Master })
		p.saw(name+" master", v.Master, same, "must be the same at every sentinel; SENTINEL RESET the one that is behind")
		p.saw(name+" replicas", strconv.Itoa(v.Replicas), v.Replicas > 0, "must be at least 1: there is nothing to promote")
	}
}

// cluster looks at each master; the driver asks them side by side.
func (c Checker) cluster(ctx context.Context, client *redisconn.Client, spec core.RedisSpec, p *part) {
	var mu sync.Mutex
	n := 0
	err := client.EachMaster(ctx, func(ctx context.Context, one redis.Cmdable) error {
		mu.Lock()
		defer mu.Unlock()
		n++
		c.server(ctx, one, "redis "+addrOf(one), spec.Mode, p)
		return nil
	})
	if err == nil && n == 0 {
		err = errors.New("no master was found")
	}
	if err != nil {
		p.silent("redis cluster "+strings.Join(spec.Addrs, ","), err)
	}
}

// addrOf is the address of one node.
func addrOf(one redis.Cmdable) string {
	if node, ok := one.(*redis.Client); ok {
		return node.Options().Addr
	}
	return "node"
}

// guarded looks at whether a primary that lost its sentinels also loses its right to write. INFO names
// the good replicas only where min-replicas-to-write and min-replicas-max-lag are set. With a single
// replica the rule would turn every failover into an outage, so it is not asked for there.
func guarded(info map[string]string, name string, p *part) {
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	good, set := info["min_slaves_good_slaves"]
	p.saw(name+" replicas", info["connected_slaves"], replicas > 0, "must be at least 1: a mirror on one server is lost with it")
	if !set {
		good = "no min-replicas-to-write"
	}
	p.saw(name+" min-replicas-to-write", good, set || replicas < 2,
		"must be at least 1 where there are two replicas or more: a primary that was cut off and replaced would go on admitting (K50)")
}

// server looks at one server. INFO has all of it, so that CONFIG need not be allowed.
func (c Checker) server(ctx context.Context, client redis.Cmdable, name, mode string, p *part) {
	text, err := client.Info(ctx).Result()
	if err != nil {
		p.silent(name, err)
		return
	}
	info := map[string]string{}
	for row := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(row), ":"); ok {
			info[key] = value
		}
	}
	major, _ := strconv.Atoi(strings.SplitN(info["redis_version"], ".", 2)[0])
	p.saw(name+" version", info["redis_version"], major >= minRedis, fmt.Sprintf("must be %d or newer: admission is a function library", minRedis))
	kind := mode
	if mode == redisconn.Sentinel { // behind sentinels is a server like any other
		kind = redisconn.Standalone
		guarded(info, name, p)
	}
	p.saw(name+" mode", info["redis_mode"], info["redis_mode"] == kind, "must be "+kind+", as redis.mode says")
	p.saw(name+" role", info["role"], info["role"] == "master", "must be master: a replica admits nobody")
	p.saw(name+" maxmemory-policy", info["maxmemory_policy"], info["maxmemory_policy"] == "noeviction",
		"must be noeviction: an evicted stock or buyer key is a lost one (K48)")
	aof := map[string]string{"1": "yes", "0": "no"}[info["aof_enabled"]]
	p.saw(name+" appendonly", aof, aof == "yes", "must be yes: without it a restart loses the stream, and with ack_mode REDIS what was accepted")
	c.readClock(ctx, p, name, func(ctx context.Context) (time.Time, error) { return client.Time(ctx).Result() })
}
