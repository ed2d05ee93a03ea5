package check_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/controlplane/check"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

const ours = "cellquota.admissions.cell-1"

// template is a shard as migrate leaves it; it has no fence row.
var template = testkit.Template{Name: "check", Setup: func(ctx context.Context, dsn string) error {
	if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
		return err
	}
	return migrate.Up(ctx, dsn)
}}

// plant is one cell on real stores, as provisioning leaves it.
type plant struct {
	t     *testing.T
	ctx   context.Context
	redis *testkit.RedisServer
	kafka *testkit.KafkaCluster
	db    *testkit.Database
	admin *pgx.Conn
	s     check.Subject
	clock clock.Clock
	cfg   check.Config
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	p := &plant{t: t, ctx: testkit.Deadline(t), redis: testkit.Redis(t, "--appendonly", "yes"), kafka: testkit.Kafka(t, 1), db: testkit.Postgres(t).Database(t, template), clock: clock.System()}
	p.admin = p.db.Conn(t)
	spec := core.CellSpec{
		ID: "cell-1", Region: "east", InstanceGroup: "blue", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{p.redis.Addr()}},
		Kafka: core.KafkaSpec{Brokers: p.kafka.Brokers(), Topic: ours, Partitions: 1, Replication: 1},
		Shard: core.ShardSpec{DSNFile: "app", ReaderDSNFile: p.file("reader", p.db.As(migrate.RoleReader)), FencerDSNFile: p.file("fencer", p.db.As(migrate.RoleFencer))},
	}
	if err := (topics.Kafka{}).Ensure(p.ctx, spec.Kafka); err != nil {
		t.Fatal(err)
	}
	p.exec("SELECT cellquota.install('cell-1', 'blue')")
	p.s = check.Subject{
		Spec: spec, Cell: &core.Cell{Spec: spec, State: core.CellActive, Version: 2, FenceVersion: 1, InstanceGroup: "blue"},
		Processes: []check.Process{{ID: "p1", Group: "blue", Version: "v1", Roles: []string{"admission", "relay", "orders", "closer", "outbox", "reconcile"}}},
	}
	return p
}

func (p *plant) file(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *plant) fifo() string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *plant) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.admin.Exec(p.ctx, sql, args...); err != nil {
		p.t.Fatal(err)
	}
}

// faults are the subjects that are not ok, and what was seen of each; every one has a rule.
func (p *plant) faults() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, f := range check.New(p.cfg, p.clock).Look(p.ctx, p.s) {
		if f.OK != (f.Rule == "") || f.Seen == "" {
			p.t.Errorf("%+v: a fault has a rule, nothing else has, and something was seen", f)
		}
		if !f.OK {
			out[f.Subject] = f.Seen
		}
		if strings.Contains(f.Seen+f.Rule, "hunter2") {
			p.t.Errorf("a secret is told: %+v", f)
		}
	}
	return out
}

// one demands exactly these faults.
func (p *plant) one(subjects ...string) {
	p.t.Helper()
	got := p.faults()
	for _, s := range subjects {
		if _, there := got[s]; !there {
			p.t.Errorf("%q is not named; named are %v", s, got)
		}
	}
	if len(got) != len(subjects) {
		p.t.Errorf("named are %v, want %v", got, subjects)
	}
}

func (p *plant) topicSetting(key, value string) {
	p.t.Helper()
	admin := kadm.NewClient(p.kafka.Client(p.t))
	answers, err := admin.AlterTopicConfigs(p.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, ours)
	if err != nil || answers[0].Err != nil {
		p.t.Fatalf("%v, %v", err, answers)
	}
}

// TestEachFaultIsNamed breaks one thing of a sound cell at a time, for real, and puts it right again.
func TestEachFaultIsNamed(t *testing.T) {
	p := newPlant(t)
	p.one()
	r := p.redis.Client(t)
	server := "redis " + p.redis.Addr() + " "
	set := func(key, value string) {
		t.Helper()
		if err := r.ConfigSet(p.ctx, key, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	latest, err := migrations.Latest()
	if err != nil {
		t.Fatal(err)
	}
	spec := p.s.Spec
	for _, row := range []struct {
		name    string
		do      func()
		undo    func()
		subject []string
	}{
		{"K48 evicting policy", func() { set("maxmemory-policy", "allkeys-lru") }, func() { set("maxmemory-policy", "noeviction") }, []string{server + "maxmemory-policy"}},
		{"no append-only file", func() { set("appendonly", "no") }, func() { set("appendonly", "yes") }, []string{server + "appendonly"}},
		{"a replica", func() { r.ReplicaOf(p.ctx, "127.0.0.1", "1") }, func() { r.ReplicaOf(p.ctx, "no", "one") }, []string{server + "role"}},
		{"another mode", func() { p.s.Spec.Redis.Mode = "cluster" }, nil, []string{"redis cluster " + p.redis.Addr()}},
		{"missing topic", func() { p.kafka.DeleteTopic(t, ours) }, func() {
			if err := (topics.Kafka{}).Ensure(p.ctx, spec.Kafka); err != nil {
				t.Fatal(err)
			}
		}, []string{"topic " + ours}},
		{"other partitions", func() { p.s.Spec.Kafka.Partitions = 3 }, nil, []string{"topic " + ours + " partitions"}},
		{"too few replicas", func() { p.s.Spec.Kafka.Replication = 3 }, nil, []string{
			"topic " + ours + " replication", "topic " + ours + " min.insync.replicas", "topic " + topics.Events + " replication", "topic " + topics.Events + " min.insync.replicas",
		}},
		{"small messages", func() { p.topicSetting("max.message.bytes", "1000") }, func() { p.topicSetting("max.message.bytes", "1048588") }, []string{"topic " + ours + " max.message.bytes"}},
		{"short retention", func() { p.topicSetting("retention.ms", "60000") }, func() { p.topicSetting("retention.ms", "-1") }, []string{"topic " + ours + " retention.ms"}},
		{"compaction", func() { p.topicSetting("cleanup.policy", "compact") }, func() { p.topicSetting("cleanup.policy", "delete") }, []string{"topic " + ours + " cleanup.policy"}},
		{
			"schema one behind", func() {
				p.exec("UPDATE cellquota.goose_db_version SET is_applied = false WHERE version_id = $1", latest)
			},
			func() { p.exec("UPDATE cellquota.goose_db_version SET is_applied = true") },
			[]string{"schema"},
		},
		{"another cell's shard", func() { p.exec("UPDATE cellquota.fence SET cell_id = 'cell-9'") }, func() { p.exec("UPDATE cellquota.fence SET cell_id = 'cell-1'") }, []string{"fence row"}},
		{"a fence that the record does not know", func() { p.exec("UPDATE cellquota.fence SET fence_version = 5") }, func() { p.exec("UPDATE cellquota.fence SET fence_version = 1") }, []string{"fence row"}},
		{"a fenced shard of an ACTIVE cell", func() { p.exec("UPDATE cellquota.fence SET state = 'FENCED'") }, func() { p.exec("UPDATE cellquota.fence SET state = 'ACTIVE'") }, []string{"fence row"}},
		{"no standby where one is demanded", func() { p.s.Spec.Shard.Replicated = true }, nil, []string{"shard synchronous commit", "shard standbys"}},
		{"a cell that may write the fence", func() { p.exec("GRANT UPDATE ON cellquota.fence TO cellquota_app") }, func() { p.exec("REVOKE UPDATE ON cellquota.fence FROM cellquota_app") }, []string{"privileges"}},
		{"a superuser as the reader", func() { p.s.Spec.Shard.ReaderDSNFile = p.file("su", p.db.DSN()) }, nil, []string{"shard as reader"}},
		{"a FIFO", func() { p.s.Spec.Shard.ReaderDSNFile = p.fifo() }, nil, []string{"shard.reader_dsn_file"}},
		{"a device as the password", func() { p.s.Spec.Redis.PasswordFile = "/dev/zero" }, nil, []string{"redis.password_file"}},
		{"a large file", func() { p.s.Spec.Redis.PasswordFile = p.file("large", strings.Repeat("x", 64<<10)) }, nil, []string{"redis.password_file"}},
		{"no such file", func() { p.s.Spec.Shard.ReaderDSNFile = "/none" }, nil, []string{"shard.reader_dsn_file"}},
		{"no address", func() { p.s.Spec.Shard.FencerDSNFile = p.file("x", "postgres://f:hunter2@[::1:x/d") }, nil, []string{"shard.fencer_dsn_file"}},
		{"nobody listens", func() {
			p.s.Spec.Shard.ReaderDSNFile = p.file("x", "postgres://f:hunter2@127.0.0.1:1/d")
			p.s.Spec.Redis.Addrs, p.s.Spec.Kafka.Brokers = []string{"127.0.0.1:1"}, append([]string{"127.0.0.1:1"}, spec.Kafka.Brokers...)
		}, nil, []string{"shard as reader", "redis 127.0.0.1:1", "broker 127.0.0.1:1"}},
		{
			"clocks", func() { p.clock = clock.Offset(clock.System(), time.Hour) }, func() { p.clock = clock.System() },
			[]string{"redis " + p.redis.Addr() + " and the control plane", "shard and the control plane"},
		},
		{"faults of a process", func() { p.s.Processes[0].Faults = []string{"redis"} }, func() { p.s.Processes[0].Faults = nil }, []string{"process p1 faults"}},
		{"nobody alive", func() { p.s.Processes = p.s.Processes[:0] }, func() { p.s.Processes = p.s.Processes[:1] }, []string{"processes"}},
		{"a role that nobody runs", func() { p.s.Processes[0].Roles = []string{"admission", "relay", "closer", "outbox"} }, nil, []string{"process roles"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			outer := p.t
			p.t = t
			defer func() { p.t = outer }()
			row.do()
			p.one(row.subject...)
			if row.undo != nil {
				row.undo()
			}
			p.s.Spec = spec
		})
	}
}

// Before it is provisioned a cell has no topic, fence row or processes, and that is no fault; a shard
// that another cell has is.
func TestASpecBeforeItIsProvisioned(t *testing.T) {
	p := newPlant(t)
	p.s.Cell, p.s.Processes = nil, nil
	p.kafka.DeleteTopic(t, ours)
	p.kafka.DeleteTopic(t, topics.Events)
	p.one() // what an earlier try left is this cell's own
	p.exec("DELETE FROM cellquota.fence")
	p.one()
	p.exec("DROP SCHEMA cellquota CASCADE")
	p.one("schema")
}

// A part that hangs costs its own answer, and no more than its deadline.
func TestAPartThatHangs(t *testing.T) {
	p := newPlant(t)
	p.cfg.Timeout = time.Second
	p.redis.Pause(t)
	before := clock.System().Now()
	p.one("redis " + p.redis.Addr())
	if took := clock.System().Now().Sub(before); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	p.redis.Resume(t)
	p.kafka.Stop(t)
	p.one(func() (all []string) {
		for _, b := range p.s.Spec.Kafka.Brokers {
			all = append(all, "broker "+b)
		}
		return all
	}()...)
}

// Nothing is changed by looking.
func TestLookingChangesNothing(t *testing.T) {
	p := newPlant(t)
	p.kafka.DeleteTopic(t, ours)
	state := func() string {
		var fence string
		var keys int64
		if err := p.admin.QueryRow(p.ctx, "SELECT f::text FROM cellquota.fence f").Scan(&fence); err != nil {
			t.Fatal(err)
		}
		r := p.redis.Client(t)
		keys = r.DBSize(p.ctx).Val() + int64(len(r.FunctionList(p.ctx, redis.FunctionListQuery{}).Val()))
		all, err := kadm.NewClient(p.kafka.Client(t)).ListTopics(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(fence, keys, all.Names())
	}
	before := state()
	p.one("topic " + ours)
	if after := state(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

// What did not connect is told by its class: the driver's text has user, database and address.
func TestAConnectionsErrorIsAClass(t *testing.T) {
	p := newPlant(t)
	const secret = "hunter2"
	refused := strings.Replace(p.db.DSN(), "postgres://", "postgres://"+secret+":"+secret+"@", 1)
	if at := strings.LastIndex(p.db.DSN(), "@"); at >= 0 {
		refused = "postgres://" + secret + ":" + secret + p.db.DSN()[at:]
	}
	for dsn, want := range map[string]string{
		refused: "refused with SQLSTATE 28",
		"postgres://" + secret + ":" + secret + "@127.0.0.1:1/" + secret: "connection refused",
	} {
		p.s.Spec.Shard.ReaderDSNFile = p.file("x", dsn)
		if seen := p.faults()["shard as reader"]; !strings.HasPrefix(seen, want) {
			t.Errorf("seen is %q, want %q", seen, want)
		}
	}
}
