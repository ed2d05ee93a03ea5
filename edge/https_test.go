package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

// serveTLS serves the face of an edge without routes under an identity.
func serveTLS(t *testing.T, files testkit.PEMFiles) string {
	t.Helper()
	return serveHandler(t, files, http.NotFoundHandler(), 100)
}

// serveTLSOf serves a handler as an edge serves its face, with so many streams to a connection.
func serveTLSOf(t *testing.T, h http.Handler, streams int) (addr string, pool *x509.CertPool) {
	t.Helper()
	files := testkit.NewAuthority(t).Issue(t.TempDir())
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return serveHandler(t, files, h, streams), pool
}

func serveHandler(t *testing.T, files testkit.PEMFiles, h http.Handler, streams int) string {
	t.Helper()
	shown, err := transport.LoadTLS(transport.TLSFiles{CertFile: files.Cert, KeyFile: files.Key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	group := lifecycle.New(ctx, slog.New(slog.DiscardHandler))
	cfg := Config{Common: config.Common{ShutdownGrace: time.Second}, HTTPAddr: "127.0.0.1:0", HTTP: HTTP{MaxConnections: 10, HeaderTimeout: time.Second, BodyTimeout: 10 * time.Second, MaxStreams: streams}}
	l, err := serveHTTP(group, cfg, h, shown, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = group.Wait(time.Second) })
	return l.Addr().String()
}

// An edge with a certificate speaks HTTPS and nothing else, and shows a replaced one
// without a restart.
func TestHTTPS(t *testing.T) {
	dir := t.TempDir()
	files := testkit.NewAuthority(t).Issue(dir)
	get := func(addr string, ca string) error { // by HTTP/2
		pem, err := os.ReadFile(ca)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(testkit.Deadline(t), http.MethodGet, "https://"+addr+"/v1/campaigns", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if err != nil {
			return err
		}
		if res.ProtoMajor != 2 {
			t.Errorf("spoke HTTP/%d", res.ProtoMajor)
		}
		return res.Body.Close()
	}
	addr := serveTLS(t, files)
	if err := get(addr, files.CA); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(testkit.Deadline(t), http.MethodGet, "http://"+addr+"/v1/campaigns", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP was answered with %d", res.StatusCode)
		}
	}
	next := testkit.NewAuthority(t).Issue(dir)
	if err := get(addr, next.CA); err != nil {
		t.Errorf("after the files changed: %v", err)
	}
}

// Plain HTTP stays on this machine, and there it is for development.
func TestPlainHTTP(t *testing.T) {
	for name, row := range map[string]struct {
		c    Config
		want string
	}{
		"dev on loopback":      {Config{Common: config.Common{Dev: true}, HTTPAddr: "127.0.0.1:1"}, ""},
		"loopback without dev": {Config{HTTPAddr: "127.0.0.1:1"}, "http.cert_file"},
		"dev elsewhere":        {Config{Common: config.Common{Dev: true}, HTTPAddr: "0.0.0.0:1"}, "http.cert_file"},
		"every address":        {Config{Common: config.Common{Dev: true}, HTTPAddr: ":1"}, "http.cert_file"},
		"with a certificate":   {Config{HTTPAddr: "0.0.0.0:1", HTTP: HTTP{CertFile: "c", KeyFile: "k"}}, ""},
		"keys of customers":    {Config{Common: config.Common{Dev: true}, HTTPAddr: "127.0.0.1:1", Identity: Identity{JWKSURL: "http://idp.example/keys"}}, "identity.jwks_url"},
	} {
		var got []string
		row.c.Check(func(key, _ string) { got = append(got, key) })
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: refused %q, want %q", name, got, row.want)
		}
	}
	group := lifecycle.New(t.Context(), slog.New(slog.DiscardHandler))
	if _, err := serveHTTP(group, Config{HTTPAddr: "0.0.0.0:0"}, http.NotFoundHandler(), nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http.cert_file") {
		t.Errorf("served plain HTTP to the network: %v", err)
	}
}
