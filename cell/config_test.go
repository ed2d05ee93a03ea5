package cell

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/config"
)

// Every key of redis that breaks a rule is named, all at once, before anything is dialled.
func TestRedisOfTheConfiguration(t *testing.T) {
	base := []string{"--dev", "--cell-id=cell-1", "--instance-group=blue", "--keys-dir=k", "--control-plane-addrs=c:1", "--kafka-brokers=127.0.0.1:9", "--shard-dsn-file=d"}
	for name, row := range map[string]struct{ args, keys []string }{
		"one server":        {[]string{"--redis-addrs=127.0.0.1:1"}, nil},
		"three sentinels":   {[]string{"--redis-mode=sentinel", "--redis-addrs=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--redis-master-name=m"}, nil},
		"two standalone":    {[]string{"--redis-addrs=a:1,b:1"}, []string{"redis.addrs"}},
		"no port, twice":    {[]string{"--redis-mode=cluster", "--redis-addrs=a,b:1,b:1"}, []string{"redis.addrs[0]", "redis.addrs[2]"}},
		"a long name":       {[]string{"--redis-mode=sentinel", "--redis-addrs=a:1", "--redis-master-name=" + strings.Repeat("m", 129)}, []string{"redis.master_name"}},
		"another mode":      {[]string{"--redis-mode=ring", "--redis-addrs=a:1"}, []string{"redis.mode"}},
		"no address at all": {nil, []string{"redis.addrs"}},
	} {
		_, err := config.Load[Config](slices.Concat(base, row.args), config.Options{Program: "cell", Environ: []string{}, Stdout: io.Discard})
		if (err == nil) != (row.keys == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, key := range row.keys {
			if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %v does not name %s", name, err, key)
			}
		}
	}
}
