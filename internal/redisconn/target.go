package redisconn

import (
	"fmt"
	"net"
	"strconv"
)

// Modes of Redis (redis.mode of cell.yaml and of a cell's configuration).
const (
	Standalone = "standalone"
	Sentinel   = "sentinel"
	Cluster    = "cluster"
)

// DefaultMaster is the name of the master that sentinels are asked for.
const DefaultMaster = "cellquota"

const (
	maxAddrs      = 32
	maxMasterName = 128
)

// Target says which Redis is meant.
type Target struct {
	Mode       string   // Standalone, Sentinel or Cluster
	Addrs      []string // host:port of the server, of sentinels, or of any nodes of the cluster
	MasterName string   // Sentinel only; "" is DefaultMaster
}

// Fault is a broken rule of a Target. Field is its key below "redis".
type Fault struct{ Field, Rule string }

// Check gives every rule that t breaks, all at once.
func (t Target) Check() []Fault {
	var out []Fault
	add := func(broken bool, field, rule string) {
		if broken {
			out = append(out, Fault{field, rule})
		}
	}
	add(t.Mode != Standalone && t.Mode != Sentinel && t.Mode != Cluster, "mode", "must be standalone, sentinel or cluster")
	add(len(t.Addrs) == 0 || len(t.Addrs) > maxAddrs, "addrs", "must list 1 to 32 addresses host:port")
	add(t.Mode == Standalone && len(t.Addrs) > 1, "addrs", "must be one address in mode standalone: a mirror is on one server")
	seen := map[string]bool{}
	for i, a := range t.Addrs {
		field := fmt.Sprintf("addrs[%d]", i)
		add(!isAddr(a), field, "must be host:port")
		add(seen[a], field, "must not be listed twice")
		seen[a] = true
	}
	add(len(t.MasterName) > maxMasterName || t.MasterName != "" && t.Mode != Sentinel, "master_name", "must have at most 128 bytes and goes with mode sentinel")
	return out
}

func isAddr(a string) bool {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// master is the name that sentinels are asked for.
func (t Target) master() string {
	if t.MasterName == "" {
		return DefaultMaster
	}
	return t.MasterName
}
