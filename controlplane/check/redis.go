package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cellquota/cellquota/controlplane/core"
)

// minRedis is the oldest Redis with function libraries.
const minRedis = 7

// redis looks at every server that would hold a mirror.
func (c Checker) redis(ctx context.Context, s Subject, p *part) {
	spec := s.Spec.Redis
	password := ""
	if spec.PasswordFile != "" {
		text, err := readFile(ctx, spec.PasswordFile)
		if err != nil {
			p.saw("redis.password_file", readable(err), false, fileRule)
			return
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	o := &redis.UniversalOptions{
		Addrs: spec.Addrs, Password: password, IsClusterMode: spec.Mode == "cluster", ClientName: "cellquota-check", DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: c.cfg.Timeout, ReadTimeout: c.cfg.Timeout, WriteTimeout: c.cfg.Timeout, ContextTimeoutEnabled: true, PoolSize: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch spec.Mode {
	case "cluster":
		c.cluster(ctx, o, p)
	case "sentinel":
		o.MasterName = cmp.Or(spec.MasterName, core.DefaultMaster)
		client := redis.NewFailoverClient(o.Failover())
		defer func() { _ = client.Close() }()
		c.server(ctx, client, "redis master "+o.MasterName, "standalone", p)
	default:
		for _, addr := range spec.Addrs { // each on its own: a mirror is on whichever the cell dials
			one := o.Simple()
			one.Addr = addr
			client := redis.NewClient(one)
			c.server(ctx, client, "redis "+addr, "standalone", p)
			_ = client.Close()
		}
	}
}

// cluster looks at each master; the driver asks them side by side.
func (c Checker) cluster(ctx context.Context, o *redis.UniversalOptions, p *part) {
	client := redis.NewClusterClient(o.Cluster())
	defer func() { _ = client.Close() }()
	var mu sync.Mutex
	n := 0
	err := client.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		n++
		c.server(ctx, one, "redis "+one.Options().Addr, "cluster", p)
		return nil
	})
	if err == nil && n == 0 {
		err = errors.New("no master was found")
	}
	if err != nil {
		p.silent("redis cluster "+strings.Join(o.Addrs, ","), err)
	}
}

// server looks at one server. INFO has all of it, so that CONFIG need not be allowed.
func (c Checker) server(ctx context.Context, client *redis.Client, name, mode string, p *part) {
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
	p.saw(name+" mode", info["redis_mode"], info["redis_mode"] == mode, "must be "+mode+", as redis.mode says")
	p.saw(name+" role", info["role"], info["role"] == "master", "must be master: a replica admits nobody")
	p.saw(name+" maxmemory-policy", info["maxmemory_policy"], info["maxmemory_policy"] == "noeviction",
		"must be noeviction: an evicted stock or buyer key is a lost one (K48)")
	aof := map[string]string{"1": "yes", "0": "no"}[info["aof_enabled"]]
	p.saw(name+" appendonly", aof, aof == "yes", "must be yes: without it a restart loses the stream, and with ack_mode REDIS what was accepted")
	c.readClock(ctx, p, name, func(ctx context.Context) (time.Time, error) { return client.Time(ctx).Result() })
}
