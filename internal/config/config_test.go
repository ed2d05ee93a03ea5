package config_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/config"
)

// settings is a Config with one of everything.
type settings struct {
	Dev      bool          `config:"dev" default:"false"`
	CellID   string        `config:"cell_id" required:"true" doc:"which cell this is"`
	TTL      time.Duration `config:"lease_ttl" default:"5s" min:"1s" max:"1m"`
	Batch    int           `config:"orders.batch_max" default:"500" min:"1" max:"5000"`
	Small    int8          `config:"small"`
	Part     uint16        `config:"part"`
	Sample   float64       `config:"trace.sample" default:"0.5" min:"0" max:"1"`
	Redis    redis         `config:"redis"`
	Roles    []string      `config:"roles" default:"admission,relay" oneof:"admission,relay,orders"`
	Ports    []int         `config:"ports"`
	Level    slog.Level    `config:"level" default:"INFO"`
	Offset   time.Duration `config:"clock_offset" default:"0s" dev:"true"`
	Password string        `config:"password" secret:"true"`
	Wide     bool          `config:"wide"`
	note     string
	Ignored  chan int `config:"-"`
}

type redis struct {
	Mode  string   `config:"mode" default:"standalone" oneof:"standalone,sentinel,cluster"`
	Addrs []string `config:"addrs" min:"1" max:"3"`
}

func (s settings) Check(problem func(key, rule string)) {
	if s.Redis.Mode == "standalone" && len(s.Redis.Addrs) > 1 {
		problem("redis.addrs", "must have one element where redis.mode is standalone")
	}
	_ = s.note
}

// file writes a configuration file and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, args []string, environ ...string) (settings, error) {
	t.Helper()
	return config.Load[settings](args, config.Options{
		Program: "cellquotad cell", Environ: append([]string{"HOME=/x"}, environ...),
		Known: []string{"http_addr", "identity.issuer"}, KnownEnv: []string{"CELLQUOTA_ENDPOINTS"},
	})
}

func TestPrecedence(t *testing.T) {
	path := file(t, "cell_id: from-file\nlease_ttl: 20s\norders:\n  batch_max: 7\n")
	env := []string{"CELLQUOTA_LEASE_TTL=30s", "CELLQUOTA_CELL_ID=from-env"}
	cases := map[string]struct {
		args    []string
		environ []string
		cell    string
		ttl     time.Duration
		batch   int
	}{
		"default":           {[]string{"--cell_id=x"}, nil, "x", 5 * time.Second, 500},
		"file over default": {[]string{"--config", path}, nil, "from-file", 20 * time.Second, 7},
		"env over file":     {[]string{"--config", path}, env, "from-env", 30 * time.Second, 7},
		"flag over env":     {[]string{"--config", path, "--lease-ttl=40s"}, env, "from-env", 40 * time.Second, 7},
		"file named by env": {nil, []string{"CELLQUOTA_CONFIG=" + path}, "from-file", 20 * time.Second, 7},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, c.args, c.environ...)
			if err != nil || got.CellID != c.cell || got.TTL != c.ttl || got.Batch != c.batch {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

func TestEveryTypeFromEverySource(t *testing.T) {
	sources := map[string][]string{
		"file": {"--config", file(t, `
dev: true
cell_id: "007"
small: -3
part: 65535
trace: {sample: 1}
redis:
  mode: cluster
  addrs: ["a:1", "b:2"]
roles: [orders]
ports: [1, 2]
level: DEBUG
clock_offset: -3s
password: hunter2
wide: true
`)},
		"flags": {
			"--dev", "--cell-id", "007", "--small=-3", "--part", "65535", "--trace.sample", "1", "--redis.mode", "cluster",
			"--redis_addrs", "a:1, b:2", "--roles", "orders", "--ports", "1,2", "--level", "DEBUG", "--clock-offset=-3s",
			"--password", "hunter2", "--wide",
		},
	}
	for name, args := range sources {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, args)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Dev || got.CellID != "007" || got.Small != -3 || got.Part != 65535 || got.Sample != 1 ||
				got.Redis.Mode != "cluster" || !slices.Equal(got.Redis.Addrs, []string{"a:1", "b:2"}) ||
				!slices.Equal(got.Roles, []string{"orders"}) || !slices.Equal(got.Ports, []int{1, 2}) ||
				got.Level != slog.LevelDebug || got.Offset != -3*time.Second || got.Password != "hunter2" || !got.Wide {
				t.Fatalf("got %+v", got)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	cases := map[string]struct {
		yaml    string
		args    []string
		environ []string
		want    string
	}{
		"required":              {want: "cell_id: is required"},
		"required, but empty":   {args: []string{"--cell-id="}, want: "cell_id: is required"},
		"unknown in file":       {yaml: "cell_id: x\nredis:\n  adrs: [a]\n", want: "redis.adrs: is not a key of this program (file %s:3)"},
		"unknown group in file": {yaml: "cell_id: x\nother:\n  k: 1\n", want: "other: is not a key of this program (file %s:2)"},
		"scalar for a group":    {yaml: "cell_id: x\nredis: 7\n", want: "redis: must be a mapping of keys (file %s:2)"},
		"unknown flag":          {args: []string{"--cell-id=x", "--nope", "v"}, want: "--nope: is not a flag of this program (command line)"},
		"argument":              {args: []string{"--cell-id=x", "up"}, want: "up: is not a flag; this program takes no arguments"},
		"unknown in env":        {environ: []string{"CELLQUOTA_CELL_ID=x", "CELLQUOTA_LEASE_TLL=1s"}, want: "CELLQUOTA_LEASE_TLL: is not a setting of any of our programs (environment)"},
		"twice in file":         {yaml: "cell_id: x\ncell_id: y\n", want: "config: must be valid YAML"},
		"two spellings in file": {yaml: "cell_id: x\nredis.mode: cluster\nredis: {mode: cluster}\n", want: "redis.mode: must be given once"},
		"not YAML":              {yaml: "cell_id: [\n", want: "config: must be valid YAML"},
		"a list":                {yaml: "- a\n", want: "config: must be a mapping of keys"},
		"two documents":         {yaml: "cell_id: x\n---\ncell_id: y\n", want: "config: must be one YAML document"},
		"no file":               {args: []string{"--config", "/nowhere/c.yaml"}, want: "config: must be a readable file"},
		"null":                  {yaml: "cell_id: x\nlease_ttl:\n", want: "lease_ttl: must have a value"},
		"number for duration":   {yaml: "cell_id: x\nlease_ttl: 5\n", want: "lease_ttl: must be a duration with its unit, such as 500ms or 5s, not 5 (file %s:2)"},
		"number for string":     {yaml: "cell_id: 007\n", want: "cell_id: must be a string (quote it), not 7"},
		"float for int":         {yaml: "cell_id: x\norders: {batch_max: 1.5}\n", want: "orders.batch_max: must be a whole number, not 1.5"},
		"string in list of int": {yaml: "cell_id: x\nports: [1, x]\n", want: "ports: element 2 must be a whole number"},
		"hole in a list":        {args: []string{"--cell-id=x", "--roles=orders,,relay"}, want: "roles: element 2 must not be empty"},
		"too small":             {args: []string{"--cell-id=x", "--lease-ttl=999ms"}, want: "lease_ttl: it must be at least 1s, not \"999ms\" (flag --lease-ttl)"},
		"too large":             {environ: []string{"CELLQUOTA_CELL_ID=x", "CELLQUOTA_ORDERS_BATCH_MAX=5001"}, want: "orders.batch_max: it must be at most 5000, not \"5001\" (environment CELLQUOTA_ORDERS_BATCH_MAX)"},
		"too many":              {args: []string{"--cell-id=x", "--redis.addrs=a,b,c,d"}, want: "redis.addrs: the number of elements must be at most 3"},
		"overflow":              {args: []string{"--cell-id=x", "--small=128"}, want: "small: must be a whole number of at most 8 bits"},
		"negative":              {args: []string{"--cell-id=x", "--part=-1"}, want: "part: must be a whole number from 0 to 65535"},
		"not a word of it":      {args: []string{"--cell-id=x", "--redis.mode=solo"}, want: "redis.mode: must be one of standalone, sentinel, cluster"},
		"one not a word of it":  {args: []string{"--cell-id=x", "--roles=relay,all"}, want: `roles: must be one of admission, relay, orders, not "relay,all"`},
		"not a bool":            {args: []string{"--cell-id=x", "--wide=yes"}, want: "wide: must be true or false"},
		"not a level":           {args: []string{"--cell-id=x", "--level=loud"}, want: "level: must be valid"},
		"dev only":              {args: []string{"--cell-id=x", "--clock-offset=1s"}, want: "clock_offset: is refused unless dev: true (flag --clock-offset)"},
		"check of several":      {args: []string{"--cell-id=x", "--redis.addrs=a,b"}, want: "redis.addrs: must have one element where redis.mode is standalone (flag --redis-addrs)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			args, path := c.args, ""
			if c.yaml != "" {
				path = file(t, c.yaml)
				args = append([]string{"--config", path}, args...)
			}
			_, err := load(t, args, c.environ...)
			var all config.Problems
			if !errors.As(err, &all) {
				t.Fatalf("got %v", err)
			}
			want := strings.ReplaceAll(c.want, "%s", path)
			if len(all) > 2 || !strings.Contains(err.Error(), "\n  "+want) {
				t.Fatalf("got %v\nwant %s", err, want)
			}
		})
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	path := file(t, "lease_ttl: 1h\nfoo: 1\nredis: {mode: solo, bar: 2}\n")
	_, err := load(t, []string{"--config", path, "--nope=1", "--nope-two", "x", "-z", "--small=300", "stray"}, "CELLQUOTA_WAT=1", "CELLQUOTA_WIDE=maybe")
	var all config.Problems
	if !errors.As(err, &all) {
		t.Fatalf("got %v", err)
	}
	var keys []string
	for _, p := range all {
		keys = append(keys, p.Key)
	}
	want := []string{"--nope", "--nope-two", "--z", "CELLQUOTA_WAT", "cell_id", "foo", "lease_ttl", "redis.bar", "redis.mode", "small", "stray", "wide"}
	if !slices.Equal(keys, want) {
		t.Fatalf("got %q\nwant %q\n%v", keys, want, err)
	}
}

func TestOtherProgramsVariablesAreIgnored(t *testing.T) {
	_, err := load(t, []string{"--cell-id=x"}, "CELLQUOTA_HTTP_ADDR=:1", "CELLQUOTA_IDENTITY_ISSUER=i", "CELLQUOTA_ENDPOINTS=e")
	if err != nil {
		t.Fatal(err)
	}
}

func TestDevAllowsWhatIsDevOnly(t *testing.T) {
	got, err := load(t, []string{"--cell-id=x", "--dev", "--clock-offset=2s"})
	if err != nil || got.Offset != 2*time.Second {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestPrintConfigMasksAndReadsBack(t *testing.T) {
	var out bytes.Buffer
	args := []string{"--print-config", "--cell-id=007", "--password=hunter2", "--redis.addrs=a:1", "--ports=1,2"}
	_, err := config.Load[settings](args, config.Options{Environ: []string{}, Stdout: &out})
	if !errors.Is(err, config.ErrHandled) {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), config.Mask) {
		t.Fatalf("printed\n%s", out.String())
	}
	got, err := load(t, []string{"--config", file(t, out.String())})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if got.CellID != "007" || got.TTL != 5*time.Second || !slices.Equal(got.Redis.Addrs, []string{"a:1"}) || !slices.Equal(got.Ports, []int{1, 2}) {
		t.Fatalf("read back %+v", got)
	}
}

func TestPrintConfigOfABrokenConfigTellsTheProblems(t *testing.T) {
	var out bytes.Buffer
	_, err := config.Load[settings]([]string{"--print-config"}, config.Options{Environ: []string{}, Stdout: &out})
	var all config.Problems
	if !errors.As(err, &all) || out.Len() != 0 {
		t.Fatalf("got %v, printed %q", err, out.String())
	}
}

func TestSecretsAreNotInProblems(t *testing.T) {
	_, err := load(t, []string{"--cell-id=x", "--config", file(t, "password: [hunter2]\n")})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("got %v", err)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	_, err := config.Load[settings]([]string{"--help"}, config.Options{Program: "cellquotad cell", Stdout: &out, Environ: []string{}})
	if !errors.Is(err, config.ErrHandled) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"Usage: cellquotad cell", "--cell-id", "which cell this is (required)", "--lease-ttl", "at least 1s; at most 1m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestDescribe(t *testing.T) {
	keys := config.Describe[settings]()
	i := slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "redis.addrs" })
	want := config.Key{
		Name: "redis.addrs", Env: "CELLQUOTA_REDIS_ADDRS", Flag: "--redis-addrs",
		Type: "list of string", Rule: "at least 1; at most 3",
	}
	if i < 0 || keys[i] != want {
		t.Fatalf("got %+v", keys)
	}
	if !slices.Contains(config.Keys[settings](), "orders.batch_max") {
		t.Fatalf("got %v", config.Keys[settings]())
	}
}

func TestCommon(t *testing.T) {
	type server struct {
		config.Common
		CellID string `config:"cell_id"`
	}
	read := func(args ...string) (server, error) {
		return config.Load[server](args, config.Options{Environ: []string{}})
	}
	got, err := read("--dev")
	if err != nil || got.ShutdownGrace != 10*time.Second || got.MetricsAddr == "" || got.TLS.Enabled() {
		t.Fatalf("got %+v, %v", got, err)
	}
	_, err = read()
	var all config.Problems
	if !errors.As(err, &all) || len(all) != 3 || all[0].Key != "tls.ca_file" || all[0].Rule != "is required unless dev: true" {
		t.Fatalf("got %v", err)
	}
	_, err = read("--dev", "--tls.cert-file=c", "--tls.key-file=k")
	if !errors.As(err, &all) || len(all) != 1 || all[0].String() != "tls.ca_file: must be given together with the other tls keys (default)" {
		t.Fatalf("got %v", err)
	}
	if got, err = read("--tls.cert-file=c", "--tls.key-file=k", "--tls.ca-file=a"); err != nil || !got.TLS.Enabled() {
		t.Fatalf("got %+v, %v", got, err)
	}
}
