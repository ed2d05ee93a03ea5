package campaignfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/core"
)

// TestTheDocumentedCell: the sample of the reference page is valid and whole, and the page says of every
// key what it is, by the default that the reader has.
func TestTheDocumentedCell(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "cell-file.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, rest, found := strings.Cut(page, "```yaml\n")
	sample, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page has no sample")
	}
	spec, faults := campaignfile.ParseCell(sample)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	filled(t, "", reflect.ValueOf(spec))
	for _, path := range core.CellPaths() {
		if !strings.Contains(page, "| `"+path+"` |") {
			t.Errorf("the page does not say what %s is", path)
		}
	}
	least, faults := campaignfile.ParseCell("apiVersion: cellquota/v1\nkind: Cell\ncell_id: cell-1\nregion: east\ninstance_group: a\nredis: {addrs: [\"h:1\"]}\n" +
		"kafka: {brokers: [\"h:2\"]}\nshard: {dsn_file: a, reader_dsn_file: b, fencer_dsn_file: c}\n")
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if least.Weight != 1 || least.Redis.Mode != "standalone" || least.Kafka.Topic != "cellquota.admissions.cell-1" || least.Kafka.Partitions != 1 || least.Kafka.Replication != 1 || least.Shard.Replicated {
		t.Errorf("the defaults are not those of the page: %+v", least)
	}
}

// filled demands that a whole sample leaves no field out.
func filled(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			filled(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
		return
	}
	if v.IsZero() {
		t.Errorf("the sample says nothing of %s", path)
	}
}

// Every fault of a file at once, each with its line; no secret is repeated.
func TestEveryFaultOfACell(t *testing.T) {
	_, faults := campaignfile.ParseCell(`apiVersion: cellquota/v1
kind: Cell
cell_id: Cell_1
region: east
weight: 0
redis: {mode: ring, addrs: ["nowhere"], password: hunter2, master_name: m}
kafka: {brokers: [], partitions: 0, tls: {cert_file: c, ca: hunter2}, sasl: {mechanism: NONE, password: hunter2}}
shard:
  dsn: postgres://app:hunter2@db/x
  reader_dsn_file: postgres://reader:hunter2@db/x
  fencer_dsn_file: /s/f
  replicated: maybe
colour: red
`)
	got := map[string]int{}
	for _, f := range faults {
		got[f.Path] = f.Line
		if strings.Contains(f.Rule, "hunter2") {
			t.Errorf("a secret is told: %+v", f)
		}
	}
	want := map[string]int{
		"cell_id": 3, "weight": 5, "redis.mode": 6, "redis.addrs[0]": 6, "redis.password": 6, "redis.master_name": 6, "kafka.brokers": 7, "kafka.partitions": 7,
		"kafka.tls.cert_file": 7, "kafka.tls.ca": 7, "kafka.sasl.mechanism": 7, "kafka.sasl.password": 7,
		"shard.dsn": 9, "shard.reader_dsn_file": 10, "shard.replicated": 12, "colour": 13,
	}
	for path, line := range want {
		if got[path] != line {
			t.Errorf("%s: line %d, want %d", path, got[path], line)
		}
	}
	for _, absent := range []string{"instance_group", "shard.dsn_file"} {
		if _, told := got[absent]; !told {
			t.Errorf("%s is missing and not named", absent)
		}
	}
}

// A second server in mode standalone is no spare: the driver would take the two for a cluster.
func TestTwoServersAreNoStandalone(t *testing.T) {
	_, faults := campaignfile.ParseCell("redis: {mode: standalone, addrs: [\"a:1\", \"b:1\"]}\n")
	for _, f := range faults {
		if f.Path == "redis.addrs" && strings.Contains(f.Rule, "one address") {
			return
		}
	}
	t.Errorf("not named: %+v", faults)
}
