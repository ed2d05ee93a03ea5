package telemetry

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// handlers answers the metrics port.
type handlers struct {
	reg   *prometheus.Registry
	ready Ready
	level *slog.LevelVar
	token string // "": loopback, everybody may
	log   *slog.Logger

	tokenFile string // read again for each call
}

func (h handlers) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", h.guarded(promhttp.HandlerFor(h.reg, promhttp.HandlerOpts{Registry: h.reg})))
	mux.Handle("GET /debug/loglevel", h.guarded(http.HandlerFunc(h.getLevel)))
	mux.Handle("PUT /debug/loglevel", h.guarded(http.HandlerFunc(h.putLevel)))
	mux.Handle("GET /debug/pprof/", h.guarded(http.HandlerFunc(pprof.Index)))
	mux.Handle("GET /debug/pprof/cmdline", h.guarded(http.HandlerFunc(pprof.Cmdline)))
	mux.Handle("GET /debug/pprof/profile", h.guarded(http.HandlerFunc(pprof.Profile)))
	mux.Handle("GET /debug/pprof/symbol", h.guarded(http.HandlerFunc(pprof.Symbol)))
	mux.Handle("GET /debug/pprof/trace", h.guarded(http.HandlerFunc(pprof.Trace)))
	return mux
}

// guarded answers 401 to a caller without the token.
func (h handlers) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allowed(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="metrics"`)
			http.Error(w, "credentials needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed compares in constant time, whatever the lengths.
func (h handlers) allowed(r *http.Request) bool {
	if h.token == "" {
		return true
	}
	want := h.token
	if now, err := readToken(h.tokenFile); err == nil && now != "" {
		want = now
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	wanted, got := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(given))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(wanted[:], got[:]) == 1
}

func (h handlers) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// readiness is the body of /readyz.
type readiness struct {
	Ready   bool              `json:"ready"`
	Reasons map[string]string `json:"reasons"`
}

func (h handlers) readyz(w http.ResponseWriter, r *http.Request) {
	ok, reasons := h.ready()
	body := readiness{Ready: ok, Reasons: map[string]string{}}
	if reasons != nil && h.allowed(r) {
		body.Reasons = reasons
	}
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, body)
}

// levelBody is what /debug/loglevel reads and writes.
type levelBody struct {
	Level string `json:"level"`
}

func (h handlers) getLevel(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, levelBody{h.level.Level().String()})
}

func (h handlers) putLevel(w http.ResponseWriter, r *http.Request) {
	wanted := r.URL.Query().Get("level")
	if wanted == "" {
		var body levelBody
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
			http.Error(w, `log_level: give ?level=debug or the body {"level":"debug"}`, http.StatusBadRequest)
			return
		}
		wanted = body.Level
	}
	level, err := ParseLevel(wanted)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	old := h.level.Level()
	h.level.Set(level)
	h.log.Warn("log level changed", Event, "log_level_changed", OldState, old.String(), NewState, level.String())
	h.getLevel(w, r)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
