package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/cellquota/cellquota/deploy/local/platform"
)

// WriteFiles writes every configuration file and every secret that is derived
// from another, anew: what is in the data directory follows the options of this
// start.
func (p Plan) WriteFiles(s Secrets) error {
	if err := os.MkdirAll(p.path("archive"), 0o750); err != nil { // the control plane makes none: a share that is not mounted must not look like an empty archive
		return fmt.Errorf("archive: %w", err)
	}
	files := map[string]func() (string, error){
		p.operatorsFile(): func() (string, error) { return p.operators(s) },
	}
	for _, server := range p.ControlPlanes {
		files[p.Config(server.Name)] = func() (string, error) { return p.controlPlane(server) }
	}
	for _, server := range p.Edges {
		files[p.Config(server.Name)] = func() (string, error) { return p.edge(server) }
	}
	for _, c := range p.Cells {
		for _, server := range c.Processes {
			files[p.Config(server.Name)] = func() (string, error) { return p.cell(c, server) }
		}
		files[p.CellFile(c)] = func() (string, error) { return p.cellFile(c) }
		files[p.RedisConfig(c.Redis)] = func() (string, error) { return p.redis(c), nil }
		if c.Replicas != nil {
			files[p.RedisConfig(c.Replicas.Redis)] = func() (string, error) { return p.redisReplica(c), nil }
			for _, one := range c.Replicas.Sentinels {
				files[p.RedisConfig(one)] = func() (string, error) { return p.sentinel(c, one), nil }
			}
		}
		for _, role := range shardRoles {
			files[p.DSNFile(c, role)] = func() (string, error) { return p.DSN(s, c, role) + "\n", nil }
		}
	}
	for file, text := range files {
		content, err := text()
		if err != nil {
			return err
		}
		if err := writeSecret(file, content); err != nil {
			return err
		}
	}
	return nil
}

// common is what every cellquotad process is told.
func (p Plan) common(s Server) document {
	d := document{
		"dev": true, "metrics_addr": s.Metrics, "keys_dir": p.keysDir(),
	}
	p.secure(d, s)
	return d
}

func (p Plan) controlPlane(s Server) (string, error) {
	d := p.common(s)
	d.put("grpc_addr", s.Addr)
	d.put("advertise_addr", s.Addr)
	d.put("etcd.endpoints", p.Etcd.Clients())
	d.put("etcd.compact_keep", "0s") // etcd keeps its history here, for whoever checks every revision; etcd.auto-compaction bounds it
	d.put("operators_file", p.operatorsFile())
	d.put("archive_dir", p.path("archive"))
	if p.Options.TLS {
		d.put("etcd.tls", p.storeTLS(s.Name))
	}
	return p.finish(d, "controlplane", s.Name)
}

func (p Plan) edge(s Server) (string, error) {
	d := p.common(s)
	d.put("http_addr", s.Addr)
	if p.Options.TLS {
		mine := p.Identity(s.Name)
		d.put("edge_id", s.Name)
		d.put("http.cert_file", mine.Cert)
		d.put("http.key_file", mine.Key)
	}
	d.put("control_plane.addrs", p.controlPlaneAddrs())
	d.put("identity.issuer", platform.TokenIssuer)
	d.put("identity.audience", platform.TokenAudience)
	d.put("identity.hs256_secret_file", platform.IdentitySecretFile(p.Options.DataDir))
	return p.finish(d, "edge", s.Name)
}

func (p Plan) cell(c Cell, s Server) (string, error) {
	d := p.common(s)
	d.put("cell_id", c.ID)
	d.put("instance_group", instanceGroup)
	d.put("region", c.Region)
	d.put("roles", s.Roles)
	d.put("grpc_addr", s.Addr)
	d.put("advertise_addr", s.Addr)
	d.put("control_plane.addrs", p.controlPlaneAddrs())
	d.put("redis", c.redisTarget())
	d.put("kafka.brokers", []string{p.Kafka.Addr})
	d.put("kafka.topic", c.Topic)
	d.put("kafka.partitions", topicPartitions)
	d.put("orders.member", strings.ReplaceAll(s.Name, "/", ".")) // the same after each restart
	d.put("shard.dsn_file", p.DSNFile(c, RoleApp))
	if p.Options.TLS {
		d.put("redis.tls", p.storeTLS(s.Name))
		d.put("kafka.tls", p.storeTLS(s.Name))
	}
	if c.Replicas != nil {
		d.put("shard.replicated", true)
	}
	return p.finish(d, "cell", c.ID)
}

// finish applies the settings of the components and renders the file.
func (p Plan) finish(d document, components ...string) (string, error) {
	if err := d.apply(p.settings.of(components...)); err != nil {
		return "", err
	}
	return render(d)
}

// cellFile is the cell as a region operator provisions it.
func (p Plan) cellFile(c Cell) (string, error) {
	d := document{
		"apiVersion": "cellquota/v1", "kind": "Cell",
		"cell_id": c.ID, "region": c.Region, "instance_group": instanceGroup, "weight": 1,
		"redis": c.redisTarget(),
		"kafka": document{
			"brokers": []string{p.Kafka.Addr}, "topic": c.Topic,
			"partitions": topicPartitions, "replication": 1,
		},
		"shard": document{
			"dsn_file":        p.DSNFile(c, RoleApp),
			"reader_dsn_file": p.DSNFile(c, RoleReader),
			"fencer_dsn_file": p.DSNFile(c, RoleFencer),
			"replicated":      c.Replicas != nil,
		},
	}
	if p.Options.TLS { // the control plane's own way to the stores, by files that each replica can read
		d.put("redis.tls", p.storeTLS(p.ControlPlanes[0].Name))
		d.put("kafka.tls", p.storeTLS(p.ControlPlanes[0].Name))
	}
	return render(d)
}

func (p Plan) operatorsFile() string { return p.path("config", "operators.yaml") }

// operators lists who may call the control plane, by the hash of the token.
func (p Plan) operators(s Secrets) (string, error) {
	var list []document
	for _, role := range operatorRoles {
		sum := sha256.Sum256([]byte(s.Operators[role]))
		entry := document{"name": "dev-" + role, "role": role, "token_sha256": hex.EncodeToString(sum[:])}
		if role == "region-operator" {
			entry["regions"] = p.Options.Regions
		}
		list = append(list, entry)
	}
	return render(document{"operators": list})
}

func (p Plan) controlPlaneAddrs() []string {
	var addrs []string
	for _, c := range p.ControlPlanes {
		addrs = append(addrs, c.Addr)
	}
	return addrs
}

func render(d document) (string, error) {
	text, err := yaml.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	return string(text), nil
}
