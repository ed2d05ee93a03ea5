package main

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestAPlatformServesAndStopsAndStartsAgain(t *testing.T) {
	dir := t.TempDir() // as root: below a folder that PostgreSQL's user may not enter
	first := start(t, dir, "--cells", "2", "--regions", "east,west", "--split-roles")
	e := first.ready()

	checkShape(t, dir, e)
	checkStores(t, e)
	write(t, e)

	first.signal(syscall.SIGTERM)
	if code := first.wait(); code != 0 {
		t.Errorf("SIGTERM: exit code %d, want 0", code)
	}
	if _, err := os.Stat(platform.EndpointsFile(dir)); !os.IsNotExist(err) {
		t.Errorf("endpoints.json after the stop: %v, want none", err)
	}
	nothingLeft(t, dir)

	second := start(t, dir, "--cells", "2", "--regions", "east,west", "--split-roles")
	again := second.ready()
	checkKept(t, again)
	if withoutPIDs(t, e) != withoutPIDs(t, again) {
		t.Errorf("addresses or secrets changed:\n%s\n%s", withoutPIDs(t, e), withoutPIDs(t, again))
	}
}

func checkShape(t *testing.T, dir string, e platform.Endpoints) {
	t.Helper()
	info, err := os.Stat(platform.EndpointsFile(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("endpoints.json: %v %v, want mode 0600", info.Mode(), err)
	}
	if len(e.Cells) != 2 || e.Cells[0].Region != "east" || e.Cells[1].Region != "west" {
		t.Errorf("cells and regions are not dealt in turn: %+v", e.Cells)
	}
	var pids []int
	pids = append(pids, e.Etcd.PIDs...)
	pids = append(pids, e.Kafka.PID, e.ControlPlanes[0].PID, e.Edges[0].PID)
	for _, c := range e.Cells {
		pids = append(pids, c.RedisPID, c.PostgresPID)
		var roles []string
		for _, p := range c.Processes {
			pids = append(pids, p.PID)
			roles = append(roles, p.Roles...)
			ok(t, p.Metrics+"/readyz")
		}
		if !slices.Equal(roles, []string{"admission", "relay", "orders", "closer", "outbox", "reconcile"}) {
			t.Errorf("%s: roles %v", c.CellID, roles)
		}
	}
	slices.Sort(pids)
	if len(slices.Compact(slices.Clone(pids))) != len(pids) || pids[0] == 0 {
		t.Errorf("process ids are not distinct and real: %v", pids)
	}
	ok(t, e.ControlPlanes[0].Metrics+"/readyz")
	ok(t, e.Edges[0].Metrics+"/readyz")
}

func ok(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", url, answer.Status)
	}
}

// checkStores logs in as everybody and looks at what matters of the settings.
func checkStores(t *testing.T, e platform.Endpoints) {
	t.Helper()
	ctx := testkit.Deadline(t)
	for _, c := range e.Cells {
		reader, err := pgx.Connect(ctx, c.Postgres)
		if err != nil {
			t.Fatalf("%s as the reader: %v", c.CellID, err)
		}
		_ = reader.Close(ctx)
		super, err := pgx.Connect(ctx, c.PostgresSuperuser)
		if err != nil {
			t.Fatalf("%s as the superuser: %v", c.CellID, err)
		}
		for setting, want := range map[string]string{"fsync": "on", "listen_addresses": "127.0.0.1", "max_connections": "160", "cluster_name": c.CellID} {
			var got string
			if err := super.QueryRow(ctx, "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %q, want %q (%v)", c.CellID, setting, got, want, err)
			}
		}
		_ = super.Close(ctx)
		client := redis.NewClient(&redis.Options{Addr: c.Redis})
		for setting, want := range map[string]string{"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"} {
			if got, err := client.ConfigGet(ctx, setting).Result(); err != nil || got[setting] != want {
				t.Errorf("%s: %s is %v, want %s (%v)", c.CellID, setting, got, want, err)
			}
		}
		_ = client.Close()
	}
}

// write leaves something in each kind of store.
func write(t *testing.T, e platform.Endpoints) {
	t.Helper()
	ctx := testkit.Deadline(t)
	etcd := etcdClient(t, e)
	if _, err := etcd.Put(ctx, "kept", "yes"); err != nil {
		t.Fatal(err)
	}
	kafka := kafkaClient(t, e)
	if _, err := kadm.NewClient(kafka).CreateTopic(ctx, 1, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := kafka.ProduceSync(ctx, &kgo.Record{Topic: "kept", Value: []byte("yes")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: e.Cells[0].Redis})
	defer client.Close()
	if err := client.Set(ctx, "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	super, err := pgx.Connect(ctx, e.Cells[0].PostgresSuperuser)
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(ctx)
	if _, err := super.Exec(ctx, "CREATE TABLE kept ()"); err != nil {
		t.Fatal(err)
	}
}

func checkKept(t *testing.T, e platform.Endpoints) {
	t.Helper()
	ctx := testkit.Deadline(t)
	if got, err := etcdClient(t, e).Get(ctx, "kept"); err != nil || got.Count != 1 {
		t.Errorf("etcd lost its key: %v %v", got, err)
	}
	ends, err := kadm.NewClient(kafkaClient(t, e)).ListEndOffsets(ctx, "kept")
	if end, found := ends.Lookup("kept", 0); err != nil || !found || end.Offset != 1 {
		t.Errorf("kafka lost its record: %v %v", ends, err)
	}
	client := redis.NewClient(&redis.Options{Addr: e.Cells[0].Redis})
	defer client.Close()
	if got, err := client.Get(ctx, "kept").Result(); err != nil || got != "yes" {
		t.Errorf("redis lost its key: %q %v", got, err)
	}
	super, err := pgx.Connect(ctx, e.Cells[0].PostgresSuperuser)
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(ctx)
	if _, err := super.Exec(ctx, "TABLE kept"); err != nil {
		t.Errorf("postgres lost its table: %v", err)
	}
}

func etcdClient(t *testing.T, e platform.Endpoints) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: e.Etcd.Endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func kafkaClient(t *testing.T, e platform.Endpoints) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(e.Kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// withoutPIDs is the text of e with process ids 0.
func withoutPIDs(t *testing.T, e platform.Endpoints) string {
	t.Helper()
	e.Etcd.PIDs, e.Kafka.PID = nil, 0
	e.ControlPlanes = slices.Clone(e.ControlPlanes)
	e.Edges, e.Cells = slices.Clone(e.Edges), slices.Clone(e.Cells)
	for i := range e.ControlPlanes {
		e.ControlPlanes[i].PID = 0
	}
	for i := range e.Edges {
		e.Edges[i].PID = 0
	}
	for i := range e.Cells {
		c := &e.Cells[i]
		c.RedisPID, c.PostgresPID = 0, 0
		c.Processes = slices.Clone(c.Processes)
		for n := range c.Processes {
			c.Processes[n].PID = 0
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnUnsupportedOptionIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--kafka", "pulsar"}, `--kafka "pulsar" is neither embedded nor apache`},
		{[]string{"--etcd", "cluster5"}, "neither single nor cluster3"},
		{[]string{"--control-planes", "2"}, "--control-planes 2 is neither 1 nor 3"},
		{[]string{"--cells", "0"}, "--cells 0 is not within 1 to 64"},
		{[]string{"--set", "cell"}, "component.key=value"},
		{[]string{"--set", "sell.x=1"}, `no component "sell"`},
		{[]string{"--nonsense"}, "unknown flag"},
		{[]string{"extra"}, "extra"},
	} {
		dir := t.TempDir() + "/new"
		r := start(t, dir, c.args...)
		if code := r.wait(); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", c.args, code, exitUsage)
		}
		if !strings.Contains(r.out.String(), c.want) {
			t.Errorf("%v: said %q, want %q in it", c.args, r.out.String(), c.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%v: the data directory was made (%v)", c.args, err)
		}
	}
}
