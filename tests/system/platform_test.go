//go:build system || chaos

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// local is one running platform.
type local struct {
	t    *testing.T
	dir  string
	file string
	*platform.Client
}

// program is one of ours, built by make into .bin.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built: run `make build` (%v)", name, err)
	}
	return path
}

// dataDir is a folder that the stores' user may enter.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // the stores run as somebody else
		t.Fatal(err)
	}
	return dir
}

// start brings a platform up and takes it down when the test ends.
func start(t *testing.T, args ...string) *local {
	t.Helper()
	return startIn(t, dataDir(t), args...)
}

// startIn is start in a data directory that is there already.
func startIn(t *testing.T, dir string, args ...string) *local {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "up.log"))
	if err != nil {
		t.Fatal(err)
	}
	if kafka := os.Getenv("SYSTEM_KAFKA"); kafka != "" { // both kinds run the same tests
		args = append(args, "--kafka", kafka)
	}
	cmd := exec.Command(program(t, "cellquota-dev"), append([]string{"up", "--data-dir", dir}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &local{t: t, dir: dir, file: platform.EndpointsFile(dir), Client: platform.NewClient(dir)}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Logf("platform ended: %v", err)
		}
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("platform's log:\n%s", tail(text, 4000))
			p.tails()
		}
	})
	testkit.Eventually(t, 90*time.Second, func() error {
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("platform ended before it was ready: %v\n%s", err, tail(text, 4000))
		default:
		}
		_, err := platform.ReadEndpoints(p.file)
		return err
	})
	return p
}

func tail(text []byte, n int) []byte {
	if len(text) > n {
		return text[len(text)-n:]
	}
	return text
}

// tails prints the end of every process's log of a failed test.
func (p *local) tails() {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "log", "*"))
	for _, file := range logs {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			p.t.Logf("%s:\n%s", filepath.Base(file), tail(text, 1500))
		}
	}
}

func (p *local) endpoints() platform.Endpoints {
	p.t.Helper()
	e, err := platform.ReadEndpoints(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// ctl runs cellctl and gives its standard output and exit code.
func (p *local) ctl(args ...string) (string, int) {
	p.t.Helper()
	out, _, code := p.run(args...)
	return out, code
}

// said gives what cellctl wrote on standard error, and its exit code.
func (p *local) said(args ...string) (string, int) {
	p.t.Helper()
	_, errs, code := p.run(args...)
	return errs, code
}

func (p *local) run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), program(p.t, "cellctl"), args...)
	cmd.Env = append(os.Environ(), "CELLQUOTA_ENDPOINTS="+p.file)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("cellctl %v: %v", args, err)
	}
	code = cmd.ProcessState.ExitCode()
	if code != 0 {
		p.t.Logf("cellctl %v: exit %d\n%s%s", args, code, tail(out.Bytes(), 3000), tail(errs.Bytes(), 3000))
	}
	return out.String(), errs.String(), code
}

// must runs cellctl and expects exit 0.
func (p *local) must(args ...string) string {
	p.t.Helper()
	out, code := p.ctl(args...)
	if code != 0 {
		p.t.Fatalf("cellctl %v: exit %d", args, code)
	}
	return out
}

// sale is what a test puts on sale.
type sale struct {
	ID          string
	Limit       int
	Reserve     int
	TTL         string
	Open, Close string
	Cells       []string // none: all
	Stock       int      // physical; 0: the limit
	TopUp       string   // the policy; empty: by hand
	Rules       string   // one more line of the campaign; empty: none
	SKURules    string   // one more line of its SKU; empty: none
}

var campaignFile = template.Must(template.New("campaign").Parse(`apiVersion: cellquota/v1
kind: Campaign
campaign_id: {{.ID}}
open_at: {{.Open}}
close_at: {{.Close}}
reservation_ttl: {{.TTL}}
refund_rule: NO_RESTOCK
{{.Rules}}
skus:
  - sku_id: phone-x
    physical_stock: {{if .Stock}}{{.Stock}}{{else}}{{.Limit}}{{end}}
    sale_limit: {{.Limit}}
    price: {amount: "4999.00", currency: CNY}
    reserve: {{.Reserve}}
    split: {policy: EQUAL}
{{- if .SKURules}}
    {{.SKURules}}
{{- end}}
{{- if .TopUp}}
    top_up: {{.TopUp}}
{{- end}}
cells: [{{range $i, $c := .Cells}}{{if $i}}, {{end}}{{$c}}{{end}}]
`))

// publish creates and publishes a campaign that is on sale at once.
func (p *local) publish(s sale) {
	p.t.Helper()
	if out, code := p.create(s); code != 0 {
		p.t.Fatalf("create %s: exit %d, %s", s.ID, code, out)
	}
	p.must("campaign", "publish", s.ID, "--timeout", "60s")
}

// create keeps a campaign that is on sale as soon as it is published; it gives cellctl's output and exit code.
func (p *local) create(s sale) (string, int) {
	p.t.Helper()
	now := time.Now()
	s.Open, s.Close = now.Add(-time.Minute).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)
	if len(s.Cells) == 0 {
		for _, c := range p.endpoints().Cells {
			s.Cells = append(s.Cells, c.CellID)
		}
	}
	var text bytes.Buffer
	if err := campaignFile.Execute(&text, s); err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.t.TempDir(), s.ID+".yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return p.ctl("campaign", "create", "-f", file)
}

// load drives customers aside; the channel gives its exit code.
func (p *local) load(ctx context.Context, args ...string) <-chan int {
	done := make(chan int, 1)
	cmd := exec.CommandContext(ctx, program(p.t, "cellctl"), append([]string{"dev", "load"}, args...)...)
	cmd.Env = append(os.Environ(), "CELLQUOTA_ENDPOINTS="+p.file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // its history is whole then
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		err := cmd.Wait()
		p.t.Logf("load: %v\n%s", err, tail(out.Bytes(), 3000))
		done <- cmd.ProcessState.ExitCode()
	}()
	return done
}

// stock is one row of v_stock.
type stock struct{ granted, available, reserved, confirmed int64 }

func (s stock) String() string {
	return fmt.Sprintf("granted %d, available %d, reserved %d, confirmed %d", s.granted, s.available, s.reserved, s.confirmed)
}
