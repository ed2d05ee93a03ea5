package telemetry_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

const token = "0123456789abcdef"

func tokenFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start serves a metrics port until the test ends.
func start(t *testing.T, ready telemetry.Ready, level *slog.LevelVar, opts ...telemetry.ServerOption) string {
	t.Helper()
	srv, err := telemetry.MetricsServer("127.0.0.1:0", telemetry.NewRegistry(), ready, level, opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return srv.URL()
}

func call(t *testing.T, method, url, auth, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestReadyzGivesReasonsAsJSON(t *testing.T) {
	ok, reasons := false, map[string]string{"etcd": "no leader for 3s"}
	url := start(t, func() (bool, map[string]string) { return ok, reasons }, nil)
	var body struct {
		Ready   bool
		Reasons map[string]string
	}
	code, text := call(t, "GET", url+"/readyz", "", "")
	if err := json.Unmarshal([]byte(text), &body); err != nil || code != 503 || body.Ready || body.Reasons["etcd"] != "no leader for 3s" {
		t.Fatalf("%d %s %v", code, text, err)
	}
	ok, reasons = true, nil
	if code, text = call(t, "GET", url+"/readyz", "", ""); code != 200 || text != `{"ready":true,"reasons":{}}`+"\n" {
		t.Fatalf("%d %s", code, text)
	}
}

func TestLogLevelChanges(t *testing.T) {
	var level slog.LevelVar
	url := start(t, nil, &level) + "/debug/loglevel"
	if code, text := call(t, "GET", url, "", ""); code != 200 || text != `{"level":"INFO"}`+"\n" {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := call(t, "PUT", url+"?level=debug", "", ""); code != 200 || level.Level() != slog.LevelDebug {
		t.Fatalf("%d %s, level %v", code, text, level.Level())
	}
	if code, _ := call(t, "PUT", url, "", `{"level":"error"}`); code != 200 || level.Level() != slog.LevelError {
		t.Fatalf("%d, level %v", code, level.Level())
	}
	for _, bad := range []string{`{"level":"loud"}`, "loud", ""} {
		if code, text := call(t, "PUT", url, "", bad); code != 400 || !strings.Contains(text, "log_level") {
			t.Errorf("%q: %d %s", bad, code, text)
		}
	}
	if level.Level() != slog.LevelError {
		t.Errorf("a refused level changed it to %v", level.Level())
	}
}

func TestTheOtherPages(t *testing.T) {
	url := start(t, nil, nil)
	for path, want := range map[string]string{
		"/healthz": "ok", "/metrics": "cellquota_build_info{", "/debug/pprof/": "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": "telemetry",
	} {
		if code, text := call(t, "GET", url+path, "", ""); code != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %.80s", path, code, text)
		}
	}
	if code, _ := call(t, "POST", url+"/debug/loglevel?level=debug", "", ""); code != 405 {
		t.Errorf("POST: %d", code)
	}
}

func TestATokenGuardsAllButTheProbes(t *testing.T) {
	notReady := func() (bool, map[string]string) { return false, map[string]string{"etcd": "10.0.0.3 refused"} }
	url := start(t, notReady, nil, telemetry.WithTokenFile(tokenFile(t, token+"\n")))
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/loglevel"} {
		for _, auth := range []string{"", "Bearer", "Bearer wrong", "Basic " + token, token} {
			if code, _ := call(t, "GET", url+path, auth, ""); code != 401 {
				t.Errorf("%s with %q: %d", path, auth, code)
			}
		}
		if code, _ := call(t, "GET", url+path, "Bearer "+token, ""); code != 200 {
			t.Errorf("%s with the token: %d", path, code)
		}
	}
	if code, _ := call(t, "PUT", url+"/debug/loglevel?level=debug", "", ""); code != 401 {
		t.Errorf("PUT without the token: %d", code)
	}
	if code, text := call(t, "GET", url+"/readyz", "", ""); code != 503 || strings.Contains(text, "10.0.0.3") {
		t.Errorf("a stranger learns the verdict only: %d %s", code, text)
	}
	if _, text := call(t, "GET", url+"/readyz", "Bearer "+token, ""); !strings.Contains(text, "10.0.0.3") {
		t.Errorf("with the token the reasons are told: %s", text)
	}
	if code, _ := call(t, "GET", url+"/healthz", "", ""); code != 200 {
		t.Errorf("healthz: %d", code)
	}
}

func TestBeyondLoopbackNeedsAToken(t *testing.T) {
	_, err := telemetry.MetricsServer("0.0.0.0:0", telemetry.NewRegistry(), nil, nil)
	if !errors.Is(err, telemetry.ErrNeedsToken) {
		t.Fatalf("got %v", err)
	}
	srv, err := telemetry.MetricsServer("127.0.0.1:0", telemetry.NewRegistry(), nil, nil,
		telemetry.WithTokenFile(tokenFile(t, token)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = telemetry.MetricsServer(srv.Addr().String(), telemetry.NewRegistry(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "metrics_addr") {
		t.Errorf("a port in use is told at once: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := srv.Serve(ctx); err != nil {
		t.Errorf("an ended context ends the server: %v", err)
	}
}

// Off loopback the port is encrypted with the certificate as its files are, and plain
// text is not understood; the token follows its file.
func TestTheMetricsPortIsEncrypted(t *testing.T) {
	if _, err := telemetry.MetricsServer("0.0.0.0:0", telemetry.NewRegistry(), nil, nil, telemetry.WithTokenFile(tokenFile(t, token))); !errors.Is(err, telemetry.ErrNeedsTLS) {
		t.Fatalf("a token would go over the network in plain text: %v", err)
	}
	dir, file := t.TempDir(), tokenFile(t, token)
	ca := testkit.NewAuthority(t)
	shown := ca.Issue(dir)
	identity, err := transport.LoadTLS(transport.TLSFiles{CertFile: shown.Cert, KeyFile: shown.Key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	far := config.Common{MetricsAddr: "0.0.0.0:0", MetricsTokenFile: file}
	near := config.Common{MetricsAddr: "127.0.0.1:0", MetricsTLS: true, MetricsTokenFile: file}
	srv, err := telemetry.MetricsServer(far.MetricsAddr, telemetry.NewRegistry(), nil, nil, telemetry.Options(far, identity.HTTPS(), slog.New(slog.DiscardHandler))...)
	if err != nil || !strings.HasPrefix(srv.URL(), "https://") {
		t.Fatalf("off loopback with both: %v", err)
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := start(t, nil, nil, telemetry.Options(near, identity.HTTPS(), slog.New(slog.DiscardHandler))...)
	get := func(auth string) (int, *x509.Certificate, int) {
		t.Helper()
		client := http.Client{Transport: &http.Transport{TLSClientConfig: shown.Client(t), ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", auth)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.TLS.PeerCertificates[0], resp.ProtoMajor
	}
	code, first, proto := get("Bearer " + token)
	if code != http.StatusOK || proto != 2 {
		t.Errorf("with the token: %d over HTTP/%d", code, proto)
	}
	if code, _, _ := get("Bearer other"); code != http.StatusUnauthorized {
		t.Errorf("with another token: %d", code)
	}
	shown = ca.Issue(dir)
	if err := os.WriteFile(file, []byte("fedcba9876543210"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, second, _ := get("Bearer fedcba9876543210")
	if code != http.StatusOK || second.Equal(first) {
		t.Errorf("after token and certificate were replaced on disk: %d, the old certificate: %v", code, second.Equal(first))
	}
	plain, err := http.Get("http://" + strings.TrimPrefix(url, "https://") + "/metrics") //nolint:noctx // a stranger's
	if err == nil {
		defer func() { _ = plain.Body.Close() }()
		if plain.StatusCode != http.StatusBadRequest {
			t.Errorf("plain text was answered with %d", plain.StatusCode)
		}
	}
}

func TestTokenFilesAreChecked(t *testing.T) {
	for name, path := range map[string]string{"short": tokenFile(t, "short\n"), "missing": filepath.Join(t.TempDir(), "no")} {
		_, err := telemetry.MetricsServer("127.0.0.1:0", telemetry.NewRegistry(), nil, nil, telemetry.WithTokenFile(path))
		if err == nil || !strings.Contains(err.Error(), "metrics_token_file") || strings.Contains(err.Error(), "short\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShutdownEndsServe(t *testing.T) {
	srv, err := telemetry.MetricsServer("127.0.0.1:0", telemetry.NewRegistry(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	if code, _ := call(t, "GET", srv.URL()+"/healthz", "", ""); code != 200 {
		t.Fatal(code)
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}
