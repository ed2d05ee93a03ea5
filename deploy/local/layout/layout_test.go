package layout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// plan plans a platform in a fresh directory, with ports from 1000 on.
func plan(t *testing.T, change func(*Options)) Plan {
	t.Helper()
	o := Defaults()
	o.DataDir = t.TempDir()
	change(&o)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	next := 999
	p, err := New(o, func(string) string { next++; return "127.0.0.1:" + strconv.Itoa(next) })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOptionsNameEverythingThatIsWrong(t *testing.T) {
	o := Defaults()
	o.Cells, o.Edges, o.Processes = 65, 0, -1
	o.Regions = []string{"east", "East", "east"}
	o.Kafka, o.Etcd, o.ControlPlanes, o.Replicated, o.TLS = "pulsar", "cluster5", 2, true, true
	o.Set = []string{"cell.a=1", "cell-66.a=1", "etcd.nonsense=1", "=x"}
	err := o.Check()
	for _, want := range []string{
		"--data-dir is required", "--cells 65", "--edges 0", "--processes -1", `"East" is not of the form`, `"east" twice`,
		`--kafka "pulsar" is neither embedded nor apache`, `--etcd "cluster5"`, "--control-planes 2 is neither", "--tls with --replicated; supported",
		`no component "cell-66"`, "etcd has the keys auto-compaction", `"=x" is not of the form`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if !errors.Is(err, ErrOption) || !errors.Is(err, ErrUnsupported) {
		t.Errorf("neither kind of error may hide the other: %v", err)
	}
}

func TestEveryPortIsNamedOnce(t *testing.T) {
	o := Defaults()
	o.Cells, o.Edges, o.Processes, o.SplitRoles = 3, 2, 2, true
	names := PortNames(o)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a port is named twice: %v", names)
	}
	// etcd 2, kafka 2, control plane 2, edges 2×2, cells 3×(2 + 12×2)
	if want := 2 + 2 + 2 + 4 + 3*26; len(names) != want {
		t.Errorf("%d ports, want %d: %v", len(names), want, names)
	}
}

func TestThreeMembersAndThreeReplicas(t *testing.T) {
	p := plan(t, func(o *Options) {
		o.ControlPlanes, o.Etcd = 3, EtcdCluster3
		o.Set = []string{"etcd.quota-backend-bytes=16777216", "etcd-2.auto-compaction=1m"}
	})
	// etcd 3×2, kafka 2, control planes 3×2, edge 2, cell 2 + 2
	if names := PortNames(p.Options); len(names) != 6+2+6+2+4 {
		t.Errorf("%d ports: %v", len(names), names)
	}
	d, s := written(t, p, p.Config("controlplane-2"))
	if got, _ := at(d, "etcd.endpoints").([]any); len(got) != 3 || got[1] != p.Etcd.Members[1].Client {
		t.Errorf("etcd.endpoints: %v", got)
	}
	d, _ = written(t, p, p.Config("cell-1/p1"))
	if got, _ := at(d, "control_plane.addrs").([]any); len(got) != 3 || got[2] != p.ControlPlanes[2].Addr {
		t.Errorf("control_plane.addrs: %v", got)
	}
	e := p.Endpoints(s)
	if len(e.Etcd.Endpoints) != 3 || len(e.Etcd.PIDs) != 3 || len(e.ControlPlanes) != 3 {
		t.Errorf("endpoints: %+v", e.Etcd)
	}
	for i, m := range p.Etcd.Members {
		args := strings.Join(p.EtcdArgs(m, s), " ")
		for _, want := range []string{"--name etcd-" + strconv.Itoa(i+1), "--member etcd-1=" + p.Etcd.Members[0].Peer, "--member etcd-3=" + p.Etcd.Members[2].Peer, "--quota-backend-bytes=16777216"} {
			if !strings.Contains(args, want) {
				t.Errorf("%s: %q is not in %s", m.Name, want, args)
			}
		}
		if strings.Contains(args, "--auto-compaction=1m") != (i == 1) {
			t.Errorf("%s: a setting of etcd-2 alone: %s", m.Name, args)
		}
	}
	o := Defaults()
	o.DataDir, o.Set = "x", []string{"etcd-2.auto-compaction=1m"}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), `no component "etcd-2"`) {
		t.Errorf("a member that is not there: %v", err)
	}
}

// --replicated: cells and cell.yaml ask sentinels, the shard's addresses lead to whichever server takes
// writes, and its primary waits for the standby.
func TestReplicatedCells(t *testing.T) {
	p := plan(t, func(o *Options) { o.Replicated = true; o.Set = []string{"cell-1/redis.maxclients=99"} })
	// etcd 2, kafka 2, control plane 2, edge 2, cell 2 + 2 + redis, three sentinels, postgres
	if names := PortNames(p.Options); len(names) != 2+2+2+2+4+5 {
		t.Errorf("%d ports: %v", len(names), names)
	}
	c := p.Cells[0]
	for _, file := range []string{p.Config("cell-1/p1"), p.CellFile(c)} {
		d, s := written(t, p, file)
		if got, _ := at(d, "redis.addrs").([]any); len(got) != 3 || got[0] != c.Replicas.Sentinels[0].Addr || at(d, "redis.mode") != "sentinel" || at(d, "shard.replicated") != true {
			t.Errorf("%s: %v", file, d)
		}
		if dsn := p.DSN(s, c, RoleApp); !strings.Contains(dsn, "@"+c.Postgres.Addr+","+c.Replicas.Postgres.Addr+"/") || !strings.Contains(dsn, "target_session_attrs=primary") {
			t.Errorf("DSN %s", dsn)
		}
		if standby := p.PostgresStandby(c, s); strings.Contains(standby, "synchronous_standby_names") || !strings.Contains(standby, "primary_slot_name = 'standby'") {
			t.Errorf("standby: %s", standby)
		}
	}
	if conf := p.Postgres(c); !strings.Contains(conf, "synchronous_standby_names = 'standby'") {
		t.Errorf("primary: %s", conf)
	}
	if replica := p.redisReplica(c); !strings.Contains(replica, "replicaof 127.0.0.1 ") || !strings.Contains(replica, "maxclients 99") {
		t.Errorf("replica: %s", replica)
	}
	if conf := p.sentinel(c, c.Replicas.Sentinels[1]); !strings.Contains(conf, "sentinel monitor cellquota 127.0.0.1 ") || strings.Contains(conf, "maxclients") {
		t.Errorf("sentinel: %s", conf)
	}
}

func TestCellsAndProcesses(t *testing.T) {
	p := plan(t, func(o *Options) { o.Cells, o.Regions, o.Processes = 3, []string{"east", "west"}, 2 })
	var regions, names []string
	for _, c := range p.Cells {
		regions = append(regions, c.Region)
		for _, s := range c.Processes {
			names = append(names, s.Name)
			if !slices.Equal(s.Roles, Roles) {
				t.Errorf("%s has the roles %v", s.Name, s.Roles)
			}
		}
	}
	if !slices.Equal(regions, []string{"east", "west", "east"}) {
		t.Errorf("regions %v", regions)
	}
	if want := []string{"cell-1/p1", "cell-1/p2", "cell-2/p1", "cell-2/p2", "cell-3/p1", "cell-3/p2"}; !slices.Equal(names, want) {
		t.Errorf("processes %v", names)
	}
	split := plan(t, func(o *Options) { o.SplitRoles = true })
	for i, s := range split.Cells[0].Processes {
		if !slices.Equal(s.Roles, Roles[i:i+1]) {
			t.Errorf("%s has the roles %v", s.Name, s.Roles)
		}
	}
}

// written makes the plan's files and reads one back.
func written(t *testing.T, p Plan, file string) (map[string]any, Secrets) {
	t.Helper()
	s, err := p.MakeSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WriteFiles(s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d, s
}

// at follows a dotted key.
func at(d map[string]any, key string) any {
	head, rest, nested := strings.Cut(key, ".")
	if inner, ok := d[head].(map[string]any); ok && nested {
		return at(inner, rest)
	}
	if nested {
		return nil
	}
	return d[head]
}

func TestConfigurationOfEachServer(t *testing.T) {
	p := plan(t, func(o *Options) { o.Cells = 2 })
	secrets := filepath.Join(p.Options.DataDir, "secrets")
	for file, want := range map[string]map[string]any{
		p.Config("controlplane-1"): {
			"dev": true, "grpc_addr": p.ControlPlanes[0].Addr, "advertise_addr": p.ControlPlanes[0].Addr,
			"metrics_addr": p.ControlPlanes[0].Metrics, "etcd.endpoints": []any{p.Etcd.Members[0].Client},
		},
		p.Config("edge-1"): {
			"dev": true, "http_addr": p.Edges[0].Addr, "control_plane.addrs": []any{p.ControlPlanes[0].Addr},
			"identity.issuer": "cellquota-dev", "identity.audience": "cellquota",
			"identity.hs256_secret_file": filepath.Join(secrets, "identity"),
		},
		p.Config("cell-2/p1"): {
			"cell_id": "cell-2", "region": "local", "instance_group": "local", "roles": anyOf(Roles),
			"redis.mode": "standalone", "redis.addrs": []any{p.Cells[1].Redis.Addr},
			"kafka.brokers": []any{p.Kafka.Addr}, "kafka.topic": "cellquota.admissions.cell-2",
			"shard.dsn_file": filepath.Join(secrets, "cell-2", "cellquota_app.dsn"),
		},
		p.CellFile(p.Cells[1]): {
			"apiVersion": "cellquota/v1", "kind": "Cell", "cell_id": "cell-2", "instance_group": "local",
			"kafka.topic": "cellquota.admissions.cell-2", "kafka.partitions": uint64(1), "kafka.replication": uint64(1),
			"shard.fencer_dsn_file": filepath.Join(secrets, "cell-2", "cellquota_fencer.dsn"),
			"shard.reader_dsn_file": filepath.Join(secrets, "cell-2", "cellquota_reader.dsn"),
		},
	} {
		d, _ := written(t, p, file)
		for key, value := range want {
			if got := at(d, key); !reflect.DeepEqual(got, value) {
				t.Errorf("%s: %s is %v (%T), want %v", file, key, got, got, value)
			}
		}
	}
}

func anyOf(list []string) []any {
	var out []any
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

func TestSettingsReachTheirComponents(t *testing.T) {
	p := plan(t, func(o *Options) {
		o.Cells = 2
		o.Set = []string{
			"cell.orders.batch_max=100", "cell-2.orders.batch_max=7", "cell.gate.interval=50ms", "edge-1.trusted_proxies=[10.0.0.1]",
			"redis.maxmemory=64mb", "cell-2/postgres.search_path=it's", "etcd.auto-compaction=0", "kafka.message.max.bytes=2000000",
		}
	})
	for file, want := range map[string]map[string]any{
		p.Config("cell-1/p1"): {"orders.batch_max": uint64(100), "gate.interval": "50ms"},
		p.Config("cell-2/p1"): {"orders.batch_max": uint64(7), "gate.interval": "50ms"},
		p.Config("edge-1"):    {"trusted_proxies": []any{"10.0.0.1"}},
	} {
		d, _ := written(t, p, file)
		for key, value := range want {
			if got := at(d, key); !reflect.DeepEqual(got, value) {
				t.Errorf("%s: %s is %v (%T), want %v", file, key, got, got, value)
			}
		}
	}
	if text := p.redis(p.Cells[0]); !strings.HasSuffix(text, "maxmemory 64mb\n") {
		t.Errorf("redis: %s", text)
	}
	if text := p.Postgres(p.Cells[1]); !strings.HasSuffix(text, "search_path = 'it''s'\n") {
		t.Errorf("postgres: %s", text)
	}
	if text := p.Postgres(p.Cells[0]); strings.Contains(text, "search_path") {
		t.Errorf("cell-2's setting reached cell-1: %s", text)
	}
	s := Secrets{Cluster: strings.Repeat("c", 64)}
	if args := p.EtcdArgs(p.Etcd.Members[0], s); !slices.Contains(args, "--auto-compaction=0") {
		t.Errorf("etcd: %v", args)
	}
	if args := p.KafkaArgs(s, Programs{}); !slices.Contains(args, "message.max.bytes=2000000") {
		t.Errorf("kafka: %v", args)
	}
}

func TestApacheKafkaIsAskedFor(t *testing.T) {
	p := plan(t, func(o *Options) { o.Kafka = ApacheKafka })
	args := p.KafkaArgs(Secrets{Cluster: strings.Repeat("c", 64)}, Programs{Java: "/j/java", KafkaJars: "/libs"})
	for _, want := range []string{"apache-kafka", p.Kafka.Controller, "/j/java", "/libs", strings.Repeat("c", 22)} {
		if !slices.Contains(args, want) {
			t.Errorf("%q is not among %v", want, args)
		}
	}
}

func TestSecretsAreMadeOnceAndReadableByTheirOwnerOnly(t *testing.T) {
	p := plan(t, func(o *Options) { o.Cells = 2 })
	_, first := written(t, p, p.Config("edge-1"))
	_, second := written(t, p, p.Config("edge-1"))
	if !reflect.DeepEqual(first, second) {
		t.Error("secrets changed between two starts")
	}
	seen := map[string]bool{}
	err := filepath.WalkDir(p.Options.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if text, err := os.ReadFile(path); err == nil && !strings.Contains(path, "/config/") {
			if seen[string(text)] {
				t.Errorf("%s is a secret that another file has too", path)
			}
			seen[string(text)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Operators are known by their tokens' hashes only.
	text, err := os.ReadFile(p.operatorsFile())
	if err != nil {
		t.Fatal(err)
	}
	for role, token := range first.Operators {
		if len(token) != 2*secretBytes || strings.Contains(string(text), token) || !strings.Contains(string(text), "role: "+role) {
			t.Errorf("operator %s in %s", role, text)
		}
	}
}
