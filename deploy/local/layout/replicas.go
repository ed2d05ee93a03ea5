package layout

import (
	"fmt"
	"strings"
)

const (
	sentinelsPerCell = 3
	// redisMaster is the name under which sentinels know a cell's Redis.
	redisMaster = "cellquota"
	// StandbyName is a standby to its primary: application name and replication slot.
	StandbyName = "standby"
)

func newReplicas(cell string, addr func(port string) string) *Replicas {
	store := func(name string) Store { return Store{cell + "/" + name, addr(cell + "/" + name)} }
	r := &Replicas{Redis: store("redis-replica"), Postgres: store("postgres-standby")}
	for i := range sentinelsPerCell {
		r.Sentinels = append(r.Sentinels, store(numbered("sentinel", i)))
	}
	return r
}

// Sentinels are the addresses of a replicated cell's sentinels.
func (c Cell) Sentinels() []string {
	var addrs []string
	for _, s := range c.Replicas.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// redisTarget is the block "redis" of cell.yaml and of a process's configuration.
func (c Cell) redisTarget() document {
	if c.Replicas == nil {
		return document{"mode": "standalone", "addrs": []string{c.Redis.Addr}}
	}
	return document{"mode": "sentinel", "addrs": c.Sentinels(), "master_name": redisMaster}
}

// redisReplica is the configuration of the replica. After a failover the sentinels rewrite it, as they
// do the primary's; the next start of the platform begins with these roles again, and the mirrors
// are built anew in any case.
func (p Plan) redisReplica(c Cell) string {
	host, port := split(c.Redis.Addr)
	return p.redisServer(c, c.Replicas.Redis) + fmt.Sprintf("replicaof %s %s\n", host, port)
}

// sentinel is the configuration of one sentinel, which writes what it learns into the same file. With
// one replica there is no min-replicas-to-write: every failover would be an outage.
func (p Plan) sentinel(c Cell, s Store) string {
	host, port := split(s.Addr)
	master, masterPort := split(c.Redis.Addr)
	lines := []string{
		"bind " + host, "port " + port, "protected-mode yes", "daemonize no", fmt.Sprintf("dir %q", p.StoreDir(s.Name)),
		fmt.Sprintf("sentinel monitor %s %s %s %d", redisMaster, master, masterPort, sentinelsPerCell/2+1),
		"sentinel down-after-milliseconds " + redisMaster + " 2000", "sentinel failover-timeout " + redisMaster + " 10000",
	}
	return strings.Join(lines, "\n") + "\n"
}

// PostgresStandby is what a standby includes after what it copied from its primary.
func (p Plan) PostgresStandby(c Cell, s Secrets) string {
	host, port := split(c.Postgres.Addr)
	lines := []string{
		quoted("primary_conninfo", fmt.Sprintf("host=%s port=%s user=%s password=%s application_name=%s",
			host, port, RoleSuperuser, s.Password(c, RoleSuperuser), StandbyName)),
		quoted("primary_slot_name", StandbyName), "hot_standby = on",
	}
	return p.postgresServer(c, c.Replicas.Postgres) + strings.Join(lines, "\n") + "\n"
}
