package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	campaign = "double-eleven"
	sku      = celltest.SKU
	issuer   = "cellquota-dev"
	audience = "cellquota"
)

// secret signs the tests' identity tokens.
var secret = bytes.Repeat([]byte("identity"), 8)

// rig is a whole edge on loopback, between a control plane and two cells that behave.
type rig struct {
	t       testing.TB
	edge    *running
	url     string
	metrics string
	control *celltest.Control
	cells   [2]*celltest.Cell
	client  *client.Client
	keys    map[signed.Use]*signed.KeySet
	keysDir string
	log     *lines
	level   *slog.LevelVar
	sent    *int64 // revision of the last message of the control plane; shared by subtests
	route   *cq.CampaignRoute
}

// lines is a log that a test reads while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var registerOnce sync.Once

// start runs an edge with edits to its configuration; further edges share the cells.
func start(t testing.TB, edit ...func(*Config)) *rig {
	t.Helper()
	registerOnce.Do(func() {
		if err := rpcstatus.Register(celltest.Kinds()...); err != nil {
			t.Fatal(err)
		}
	})
	r := &rig{t: t, keysDir: t.TempDir(), keys: map[signed.Use]*signed.KeySet{}, sent: new(int64)}
	for _, use := range []signed.Use{signed.UsePermit, signed.UseReceipt, signed.UsePayment} {
		r.addKey(use, "k1")
		set, err := signed.LoadKeys(r.keysDir, use)
		if err != nil {
			t.Fatal(err)
		}
		r.keys[use] = set
	}
	r.control = celltest.StartControl(t)
	for i, id := range []ids.CellID{"cell-1", "cell-2"} {
		r.cells[i] = celltest.Start(t, id, r.keys[signed.UseReceipt])
		r.cells[i].SetStock(campaign, sku, 1000)
	}
	r.route = celltest.Route(campaign, now(), "cell-1", "cell-2")
	r.run(edit...)
	r.send(&cq.WatchRoutesResponse{Full: true, Campaigns: []*cq.CampaignRoute{r.route}, Cells: []*cq.CellRoute{
		r.cells[0].Route(cq.CellState_CELL_STATE_ACTIVE), r.cells[1].Route(cq.CellState_CELL_STATE_ACTIVE),
	}})
	r.warm()
	return r
}

// run starts an edge for the rig, until the test ends.
func (r *rig) run(edit ...func(*Config)) {
	t := r.t
	t.Helper()
	secretFile := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(secretFile, append(secret, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load[Config]([]string{
		"--dev", "--http-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--keys-dir=" + r.keysDir,
		"--control-plane-addrs=" + r.control.Addr, "--identity-issuer=" + issuer, "--identity-audience=" + audience,
		"--identity-hs256-secret-file=" + secretFile, "--request-timeout=2s", "--shutdown-grace=5s", "--http-drain-delay=0s",
	}, config.Options{Program: "edge test", Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range edit {
		f(&cfg)
	}
	if _, err := telemetry.InitTracing(context.Background(), "cellquota-edge", "", 0); err != nil {
		t.Fatal(err)
	}
	r.log = &lines{}
	level := &slog.LevelVar{}
	level.Set(slog.LevelDebug)
	r.level = level
	log := telemetry.NewLogger(r.log, "edge", level)
	ctx, stop := context.WithCancel(context.Background())
	group := lifecycle.New(ctx, log)
	e, err := assemble(group, cfg, log, level)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	r.edge, r.url, r.metrics = e, "http://"+e.listener.Addr().String(), e.metrics.URL()
	r.client, err = client.New(client.Config{BaseURLs: []string{r.url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.client.Close()
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := group.Wait(cfg.ShutdownGrace); err != nil {
			t.Errorf("edge did not stop well: %v", err)
		}
	})
}

// send sends a message of the control plane and waits until the edge acknowledged it.
func (r *rig) send(m *cq.WatchRoutesResponse) {
	r.t.Helper()
	*r.sent++
	m.Revision = *r.sent
	r.control.Send(m)
	testkit.Eventually(r.t, 10*time.Second, func() error {
		if acks, _ := r.control.Acked(); len(acks) == 0 || acks[len(acks)-1] < *r.sent {
			return fmt.Errorf("acknowledged %v, want %d", acks, *r.sent)
		}
		return nil
	})
}

// change changes the campaign.
func (r *rig) change(edit func(*cq.CampaignRoute)) {
	r.t.Helper()
	edit(r.route)
	r.route.Version++
	r.send(&cq.WatchRoutesResponse{Campaigns: []*cq.CampaignRoute{r.route}})
}

// cell changes what the control plane says about a cell.
func (r *rig) cell(i int, edit func(*cq.CellRoute)) {
	r.t.Helper()
	c := r.cells[i].Route(cq.CellState_CELL_STATE_ACTIVE)
	edit(c)
	r.send(&cq.WatchRoutesResponse{Cells: []*cq.CellRoute{c}})
}

// warm waits until both cells answer.
func (r *rig) warm() {
	r.t.Helper()
	for i := range r.cells {
		user := celltest.Homed("warm", 1, i, 2)[0]
		testkit.Eventually(r.t, 10*time.Second, func() error {
			_, a, err := r.client.Permit(context.Background(), r.token(user), campaign, sku)
			if err != nil || !a.OK() {
				return fmt.Errorf("cell %d: %w %d %s", i, err, a.Status, a.Code)
			}
			return nil
		})
	}
}

func (r *rig) addKey(use signed.Use, kid string) {
	r.t.Helper()
	dir := filepath.Join(r.keysDir, string(use))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, kid), []byte(strings.Repeat(string(use)+kid, 8)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func now() time.Time { return clock.System().Now() }

// token is a user's identity token.
func (r *rig) token(user string, edit ...func(*client.TokenClaims)) string {
	r.t.Helper()
	c := client.TokenClaims{Issuer: issuer, Audience: audience, User: user, Expires: now().Add(time.Hour)}
	for _, f := range edit {
		f(&c)
	}
	token, err := client.SignToken(secret, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// permit claims a permit, which must succeed.
func (r *rig) permit(user string) string {
	r.t.Helper()
	p, a, err := r.client.Permit(context.Background(), r.token(user), campaign, sku)
	if err != nil || a.Status != http.StatusCreated {
		r.t.Fatalf("permit of %s: %v %d %s", user, err, a.Status, a.Body)
	}
	return p.Permit
}

// buy sends one attempt under request id "r1".
func (r *rig) buy(user, permit string, edit ...func(*client.Try)) (client.Request, client.Answer) {
	r.t.Helper()
	try := client.Try{RequestID: "r1", Quantity: 1, Permit: permit}
	for _, f := range edit {
		f(&try)
	}
	q, a, err := r.client.Buy(context.Background(), r.token(user), campaign, sku, try)
	if err != nil {
		r.t.Fatalf("buy of %s: %v", user, err)
	}
	return q, a
}

// must fails the test unless the answer has this status and code.
func (r *rig) must(a client.Answer, status int, code string) {
	r.t.Helper()
	if a.Status != status || a.Code != code {
		r.t.Fatalf("answer is %d %q, want %d %q: %s", a.Status, a.Code, status, code, a.Body)
	}
}

// raw makes a call as it is given and returns the response with its body.
func (r *rig) raw(method, path, body string, header map[string]string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	r.conforms(req, res, string(out))
	return res, string(out)
}

// code is the code of a problem's body.
func (r *rig) code(body string) string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(body), &p) // no problem, no code
	return p.Code
}

// scrape reads the metrics port.
func (r *rig) scrape() string {
	r.t.Helper()
	res, err := http.Get(r.metrics + "/metrics") //nolint:noctx // a test
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// counter is the value of a series, written as Prometheus writes it; 0 when it is not there.
func (r *rig) counter(series string) float64 {
	r.t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(r.scrape())
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}
