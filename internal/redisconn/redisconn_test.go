package redisconn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/testkit"
)

func TestEveryBrokenRuleIsNamed(t *testing.T) {
	many := make([]string, maxAddrs+1)
	for i := range many {
		many[i] = strings.Repeat("h", i+1) + ":1"
	}
	for name, row := range map[string]struct {
		target Target
		fields []string
	}{
		"standalone":             {Target{Mode: Standalone, Addrs: []string{"h:1"}}, nil},
		"IPv6":                   {Target{Mode: Standalone, Addrs: []string{"[::1]:6379"}}, nil},
		"sentinel":               {Target{Mode: Sentinel, Addrs: []string{"a:1", "b:1", "c:1"}, MasterName: "m"}, nil},
		"cluster":                {Target{Mode: Cluster, Addrs: []string{"a:1", "b:1"}}, nil},
		"no mode, no address":    {Target{}, []string{"mode", "addrs"}},
		"two servers standalone": {Target{Mode: Standalone, Addrs: []string{"a:1", "b:1"}}, []string{"addrs"}},
		"too many":               {Target{Mode: Cluster, Addrs: many}, []string{"addrs"}},
		"twice":                  {Target{Mode: Cluster, Addrs: []string{"a:1", "a:1"}}, []string{"addrs[1]"}},
		"no port":                {Target{Mode: Cluster, Addrs: []string{"a:1", "b"}}, []string{"addrs[1]"}},
		"port 0":                 {Target{Mode: Cluster, Addrs: []string{"a:0", "b:65536"}}, []string{"addrs[0]", "addrs[1]"}},
		"a name for a cluster":   {Target{Mode: Cluster, Addrs: []string{"a:1"}, MasterName: "m"}, []string{"master_name"}},
		"a long name":            {Target{Mode: Sentinel, Addrs: []string{"a:1"}, MasterName: strings.Repeat("m", 129)}, []string{"master_name"}},
	} {
		var fields []string
		for _, f := range row.target.Check() {
			fields = append(fields, f.Field)
		}
		if !slices.Equal(fields, row.fields) {
			t.Errorf("%s: %v, want %v", name, fields, row.fields)
		}
		if _, err := Open(Options{Target: row.target, Timeout: time.Second}); errors.Is(err, ErrTarget) != (row.fields != nil) {
			t.Errorf("%s: opened with %v", name, err)
		}
	}
}

func TestTheNewestViewCounts(t *testing.T) {
	gone := View{Err: errors.New("gone")}
	for name, row := range map[string]struct {
		views  []View
		master string
	}{
		"none":               {nil, ""},
		"all gone":           {[]View{gone, gone}, ""},
		"one":                {[]View{gone, {Master: "a"}}, "a"},
		"the later one":      {[]View{{Master: "a", Epoch: 1}, {Master: "b", Epoch: 2}, {Master: "a", Epoch: 1}}, "b"},
		"equal, the first":   {[]View{{Master: "a", Epoch: 2}, {Master: "b", Epoch: 2}}, "a"},
		"one that is away":   {[]View{{Master: "a", Epoch: 1}, gone}, "a"},
		"epoch 0 at a start": {[]View{{Master: "a"}, {Master: "a"}}, "a"},
	} {
		best, err := newest(row.views)
		if best.Master != row.master || (err == nil) != (row.master != "") {
			t.Errorf("%s: %q %v, want %q", name, best.Master, err, row.master)
		}
	}
}

func runOf(ctx context.Context, t *testing.T, c redis.Cmdable) string {
	t.Helper()
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	return info["Server"]["run_id"]
}

// K50: the replica was promoted while the old primary stays reachable and knows nothing of it. The
// connections stay where they are until Follow; then every one goes to the new primary.
func TestFollowLeavesAReplacedPrimary(t *testing.T) {
	g := testkit.RedisReplicated(t, 1)
	ctx := testkit.Deadline(t)
	c, err := Open(Options{Target: Target{Mode: Sentinel, Addrs: g.Addrs()}, Password: testkit.RedisPassword, Timeout: 2 * time.Second, PoolSize: 4, MaxRetries: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	before, after := runOf(ctx, t, g.Primary.Client(t)), runOf(ctx, t, g.Replica.Client(t))
	if got := runOf(ctx, t, c); got != before {
		t.Fatalf("dialled %s, the primary is %s", got, before)
	}
	g.HidePrimary(t)
	g.AwaitPromoted(t)
	if got := runOf(ctx, t, c); got != before {
		t.Fatalf("the old primary was left before anybody asked: %s", got)
	}
	if err := c.Follow(ctx); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if got := runOf(ctx, t, c); got != after {
			t.Fatalf("still at %s, the primary is %s", got, after)
		}
	}
	if views := c.Views(ctx); len(views) != 1 || views[0].Master != g.Replica.Addr() || views[0].Sentinel != g.Addrs()[0] || views[0].Epoch == 0 {
		t.Fatalf("views %+v", views)
	}
}

// Sentinels that are gone, and a name that they do not know, are told apart from a server's silence.
func TestNoSentinelNamesAMaster(t *testing.T) {
	g := testkit.RedisReplicated(t, 1)
	ctx := testkit.Deadline(t)
	open := func(name string) *Client {
		t.Helper()
		c, err := Open(Options{Target: Target{Mode: Sentinel, Addrs: g.Addrs(), MasterName: name}, Password: testkit.RedisPassword, Timeout: time.Second, MaxRetries: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if err := open("other").Follow(ctx); !errors.Is(err, ErrNoMaster) || !strings.Contains(err.Error(), "No such master") {
		t.Fatalf("another name: %v", err)
	}
	c := open("")
	if err := c.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	g.Sentinels[0].Kill(t)
	if err := c.Follow(ctx); !errors.Is(err, ErrNoMaster) {
		t.Fatalf("no sentinel: %v", err)
	}
	if err := c.Ping(ctx).Err(); err != nil { // what is dialled goes on
		t.Fatal(err)
	}
}
