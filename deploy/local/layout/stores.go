package layout

import (
	"fmt"
	"net"
	"strings"
)

// postgresDataName is the server's data directory below PostgresHome.
const postgresDataName = "data"

// redis is the configuration of a cell's redis-server: an append-only file
// written every second, and never an eviction, for a key that is evicted would
// be a buyer who may buy twice.
func (p Plan) redis(c Cell) string { return p.redisServer(c, c.Redis) }

func (p Plan) redisServer(c Cell, server Store) string {
	host, port := split(server.Addr)
	lines := []string{
		"bind " + host, "port " + port, "protected-mode yes", "daemonize no",
		fmt.Sprintf("dir %q", p.StoreDir(server.Name)),
		"appendonly yes", "appendfsync everysec", `save ""`,
		"maxmemory-policy noeviction", "loglevel notice",
	}
	if p.Options.TLS {
		mine := p.Identity(server.Name)
		lines[1] = "port 0"
		lines = append(lines, "tls-port "+port, fmt.Sprintf("tls-cert-file %q", mine.Cert), fmt.Sprintf("tls-key-file %q", mine.Key),
			fmt.Sprintf("tls-ca-cert-file %q", p.CAFile()), "tls-auth-clients yes")
	}
	for _, s := range p.settings.of("redis", c.Redis.Name) {
		lines = append(lines, s.key+" "+s.value)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Postgres is the configuration that a shard's server includes after its own:
// loopback only, durable, and quiet enough that four of them share two cores. A replicated one waits for
// its standby with every commit.
func (p Plan) Postgres(c Cell) string {
	text := p.postgresServer(c, c.Postgres)
	if c.Replicas != nil {
		text += quoted("synchronous_standby_names", StandbyName) + "\n"
	}
	return text
}

func (p Plan) postgresServer(c Cell, server Store) string {
	host, port := split(server.Addr)
	lines := []string{
		quoted("listen_addresses", host), "port = " + port, "unix_socket_directories = ''",
		quoted("cluster_name", c.ID),
		fmt.Sprintf("max_connections = %d", connections(len(c.Processes))), "shared_buffers = 64MB", "huge_pages = off",
		"fsync = on", "synchronous_commit = on", "full_page_writes = on", "wal_level = replica",
		"max_wal_size = 2GB", "min_wal_size = 256MB", "checkpoint_timeout = 15min", "wal_compression = on",
		"password_encryption = 'scram-sha-256'",
		"jit = off", "max_parallel_workers_per_gather = 0", "autovacuum_max_workers = 2", "autovacuum_naptime = 15s",
		"log_timezone = 'UTC'", "timezone = 'UTC'", "log_checkpoints = off",
		"log_line_prefix = '%m [%p] %u@%d '",
	}
	if p.Options.TLS {
		lines = append(lines, "ssl = on", quoted("ssl_cert_file", "../"+PostgresCert), quoted("ssl_key_file", "../"+PostgresKey))
	}
	for _, s := range p.settings.of("postgres", c.Postgres.Name) {
		lines = append(lines, quoted(s.key, s.value))
	}
	return strings.Join(lines, "\n") + "\n"
}

// connections is how many a shard's server allows: a process's pool (16 by
// default) with some room, and 40 for the control plane, operators and tests.
func connections(processes int) int {
	const usual, others, perProcess = 100, 40, 20
	return max(usual, others+perProcess*processes)
}

func quoted(key, value string) string {
	return fmt.Sprintf("%s = '%s'", key, strings.ReplaceAll(value, "'", "''"))
}

// EtcdArgs are the arguments of `cellquota-dev etcd` for one member.
func (p Plan) EtcdArgs(m EtcdMember, s Secrets) []string {
	args := []string{
		"etcd", "--name", m.Name, "--data-dir", p.StoreDir(m.Name),
		"--client-addr", m.Client, "--peer-addr", m.Peer, "--cluster-token", s.Cluster,
	}
	for _, peer := range p.Etcd.Members {
		args = append(args, "--member", peer.Name+"="+peer.Peer)
	}
	if p.Options.TLS {
		mine := p.Identity(m.Name)
		args = append(args, "--cert-file", mine.Cert, "--key-file", mine.Key, "--ca-file", p.CAFile())
	}
	components := []string{etcdStep}
	if m.Name != etcdStep {
		components = append(components, m.Name)
	}
	for _, set := range p.settings.of(components...) {
		args = append(args, "--"+set.key+"="+set.value)
	}
	return args
}

// KafkaArgs are the arguments of `cellquota-dev kafka` or `apache-kafka`.
// Settings are broker configurations.
func (p Plan) KafkaArgs(s Secrets, programs Programs) []string {
	args := []string{"kafka"}
	if p.Options.Kafka == ApacheKafka {
		args = []string{"apache-kafka", "--controller-addr", p.Kafka.Controller, "--java", programs.Java, "--jars", programs.KafkaJars}
	}
	args = append(args, "--data-dir", p.StoreDir(p.Kafka.Name), "--addr", p.Kafka.Addr,
		"--cluster-id", s.Cluster[:22]) // as long as Kafka's own
	if p.Options.TLS {
		mine := p.Identity(p.Kafka.Name)
		args = append(args, "--cert-file", mine.Cert, "--key-file", mine.Key, "--ca-file", p.CAFile())
	}
	for _, set := range p.settings.of("kafka") {
		args = append(args, "--broker-config", set.key+"="+set.value)
	}
	return args
}

// split takes an address of our own making apart.
func split(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic("layout: " + err.Error()) // made by ports.Addr
	}
	return host, port
}
