package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// minRedis is the first major version with function libraries.
const minRedis = 7

// fitPolicy is the only eviction policy under which a guard key cannot vanish.
const fitPolicy = "noeviction"

// server is what one Redis node says about itself.
type server struct {
	node  string // cluster node id; "" outside a cluster
	run   string // run id, another one after every start; and how many keys it evicted, if any
	state string // of the cluster as this node sees it; "" outside a cluster
	role  string
	major int
	evict string
}

// askServer reads INFO (and CLUSTER MYID and INFO) of one node. A server that evicted keys is another
// one from then on: under an evicting policy, however short, records and entries went that no script
// would miss, so its mirrors are built anew (K48).
func askServer(ctx context.Context, node redis.Cmdable, cluster bool) (server, error) {
	text, err := node.InfoMap(ctx, "server", "replication", "memory", "stats").Result()
	if err != nil {
		return server{}, translate(err)
	}
	s := server{
		run:   text["Server"]["run_id"],
		role:  text["Replication"]["role"],
		evict: text["Memory"]["maxmemory_policy"],
	}
	if evicted := text["Stats"]["evicted_keys"]; evicted != "" && evicted != "0" {
		s.run += "-" + evicted
	}
	major, _, _ := strings.Cut(text["Server"]["redis_version"], ".")
	if s.major, err = strconv.Atoi(major); err != nil {
		return server{}, fmt.Errorf("%w: redis_version %.40q", ErrUnfit, text["Server"]["redis_version"])
	}
	if cluster {
		if s.node, err = node.ClusterMyID(ctx).Result(); err != nil {
			return server{}, translate(err)
		}
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil {
			return server{}, translate(err)
		}
		s.state = clusterState(info)
	}
	return s, nil
}

// clusterState is "ok" of a node that serves: one that is cut off from the majority says so itself.
func clusterState(info string) string {
	for row := range strings.Lines(info) {
		if state, ok := strings.CutPrefix(strings.TrimSpace(row), "cluster_state:"); ok {
			return state
		}
	}
	return ""
}

// fit is nil for a master that may hold a mirror.
func (s server) fit() error {
	switch {
	case s.role != "master":
		return refuse(ErrNotMaster, "role is %s", s.role)
	case s.node != "" && s.state != "ok":
		return refuse(ErrUnavailable, "cluster_state is %s", s.state)
	case s.major < minRedis:
		return refuse(ErrUnfit, "version is %d, must be %d or newer", s.major, minRedis)
	case s.evict != fitPolicy:
		return refuse(ErrUnfit, "maxmemory-policy is %s, must be %s", s.evict, fitPolicy)
	}
	return nil
}

// refusal is an error of the connect hook. The driver unwraps such errors by one
// level, so the sentinel is told by Is and not by Unwrap.
type refusal struct {
	kind error
	text string
}

func refuse(kind error, format string, args ...any) error {
	return refusal{kind, kind.Error() + ": " + fmt.Sprintf(format, args...)}
}

// Error says what is wrong with the server.
func (r refusal) Error() string { return r.text }

// Is makes errors.Is find the sentinel.
func (r refusal) Is(target error) bool { return target == r.kind }

// identity names a set of servers: it changes when any of them was restarted or
// replaced.
func identity(servers []server) string {
	parts := make([]string, len(servers))
	for i, s := range servers {
		parts[i] = s.node + "/" + s.run
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// runs remembers which Redis processes were acknowledged.
type runs struct {
	mu      sync.Mutex
	known   map[string]string // node → run id
	changed chan struct{}     // holds one signal
}

func newRuns() *runs {
	return &runs{known: map[string]string{}, changed: make(chan struct{}, 1)}
}

// admit is nil when s is an acknowledged process.
func (r *runs) admit(s server) error {
	r.mu.Lock()
	run, seen := r.known[s.node]
	r.mu.Unlock()
	if seen && run == s.run {
		return nil
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return refuse(ErrRunChanged, "run id is %s", s.run)
}

func (r *runs) acknowledge(servers []server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = make(map[string]string, len(servers))
	for _, s := range servers {
		r.known[s.node] = s.run
	}
}

// acknowledged reports whether exactly these processes are known.
func (r *runs) acknowledged(servers []server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) != len(servers) {
		return false
	}
	for _, s := range servers {
		if run, ok := r.known[s.node]; !ok || run != s.run {
			return false
		}
	}
	return true
}

// connectHook runs on every new connection before any call: a replica or an unfit
// server is refused, and on the admitting pool one that was not acknowledged.
func connectHook(cluster bool, known *runs) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, cn *redis.Conn) error {
		s, err := askServer(ctx, cn, cluster)
		if err != nil {
			return err
		}
		if err := s.fit(); err != nil {
			return err
		}
		if known == nil {
			return nil
		}
		return known.admit(s)
	}
}
