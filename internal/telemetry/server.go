package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/config"
)

// Ready tells whether the process should get traffic, and if not, why: reasons
// by part ("etcd": "no leader for 3s"). It is called for each probe, from many
// goroutines, and must not block.
type Ready func() (ok bool, reasons map[string]string)

// Server is the metrics port of a process.
type Server struct {
	listener net.Listener
	http     *http.Server
	scheme   string
}

// ServerOption is something a metrics server may be given.
type ServerOption func(*serverOptions)

type serverOptions struct {
	tokenFile string
	tls       *tls.Config
	log       *slog.Logger
}

// Options are the settings of the metrics port in a process's configuration. identity is
// the process's certificate (tls.*); nil: it has none.
func Options(cfg config.Common, identity *tls.Config, log *slog.Logger) []ServerOption {
	opts := []ServerOption{WithServerLog(log)}
	if cfg.MetricsTokenFile != "" {
		opts = append(opts, WithTokenFile(cfg.MetricsTokenFile))
	}
	if identity != nil && (cfg.MetricsTLS || !config.Loopback(cfg.MetricsAddr)) {
		opts = append(opts, WithTLS(identity))
	}
	return opts
}

// WithTLS encrypts. Required unless the server listens on loopback.
func WithTLS(identity *tls.Config) ServerOption {
	return func(o *serverOptions) { o.tls = identity }
}

// WithTokenFile makes every caller show the bearer token that the file holds
// (at least 16 bytes; the trailing newline is not part of it). Required unless
// the server listens on loopback. The file is read again for each call; one that cannot
// be read any more leaves the last token.
func WithTokenFile(path string) ServerOption {
	return func(o *serverOptions) { o.tokenFile = path }
}

// WithServerLog gives the server a logger for changes of the log level and for
// what net/http complains about.
func WithServerLog(log *slog.Logger) ServerOption {
	return func(o *serverOptions) { o.log = log }
}

// ErrNeedsToken refuses a metrics port that other machines could read freely.
var ErrNeedsToken = errors.New("metrics_addr: not on loopback: needs metrics_token_file")

// ErrNeedsTLS refuses a metrics port that would tell a token to whoever listens.
var ErrNeedsTLS = errors.New("metrics_addr: not on loopback: needs tls.cert_file and tls.key_file")

// MetricsServer listens on addr ("127.0.0.1:0" picks a port, see Addr) and
// serves, once Serve runs:
//
//	GET /metrics          the registry
//	GET /healthz          200 while the process lives
//	GET /readyz           200 or 503 with {"ready":…,"reasons":{…}}
//	GET /debug/pprof/…    profiles
//	GET /debug/loglevel   {"level":"INFO"};  PUT ?level=debug or {"level":"debug"}
//
// Without the token only /healthz and the bare verdict of /readyz are answered,
// for probes; the rest is 401. A nil ready is always ready; with a nil level the
// level can be set and nobody heeds it. The address is taken here, so that a port in use
// stops the start of the process.
func MetricsServer(addr string, reg *prometheus.Registry, ready Ready, level *slog.LevelVar, opts ...ServerOption) (*Server, error) {
	o := serverOptions{log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		opt(&o)
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics_addr: %w", err)
	}
	switch far := !onLoopback(l.Addr()); {
	case far && token == "":
		return nil, errors.Join(fmt.Errorf("%w (%s)", ErrNeedsToken, l.Addr()), l.Close())
	case far && o.tls == nil:
		return nil, errors.Join(fmt.Errorf("%w (%s)", ErrNeedsTLS, l.Addr()), l.Close())
	}
	if ready == nil {
		ready = func() (bool, map[string]string) { return true, nil }
	}
	if level == nil {
		level = new(slog.LevelVar)
	}
	h := handlers{reg: reg, ready: ready, level: level, token: token, tokenFile: o.tokenFile, log: o.log}
	return &Server{listener: l, scheme: schemeOf(o.tls), http: &http.Server{
		Handler:           h.mux(),
		TLSConfig:         o.tls,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.log.Handler(), slog.LevelWarn),
	}}, nil
}

// Addr is the address the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL is "http://" or "https://" and the address.
func (s *Server) URL() string { return s.scheme + s.Addr().String() }

func schemeOf(identity *tls.Config) string {
	if identity == nil {
		return "http://"
	}
	return "https://"
}

// Serve answers until Shutdown, or until ctx ends, and returns nil then. It is
// made to be a member of a lifecycle.Group: being the last thing to stop, it
// still tells a scraper how the drain goes.
func (s *Server) Serve(ctx context.Context) error {
	end := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer end()
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(s.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics server: %w", err)
	}
	return nil
}

// Shutdown stops taking calls and waits for those that run, as long as ctx allows.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

// readToken returns the file's token; "" for no file.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("metrics_token_file: %w", err)
	}
	token := strings.TrimRight(string(raw), "\r\n")
	if len(token) < 16 {
		return "", fmt.Errorf("metrics_token_file: %s: the token must have at least 16 bytes", path)
	}
	return token, nil
}

func onLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
