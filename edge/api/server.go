package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/cellquota/cellquota/edge/identity"
	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/permit"
	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/risk"
	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/edge/soldout"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Settings are the bounds of the face.
type Settings struct {
	Timeout        time.Duration // longest wait for a cell
	MaxWait        time.Duration // longest long poll of GET …/requests/{id}
	MaxWaiters     int           // long polls at once; beyond it they are answered at once
	MaxRunning     int           // calls at once
	MaxPerUser     int           // requests of one user at once; 0: no bound
	MaxPerDevice   int           // requests of one device at once; 0: no bound
	MaxPerNetwork  int           // requests from one network at once; 0: no bound
	CallbackWindow time.Duration // how far a payment signature's time may be off
	Origins        []string      // CORS
}

// Parts are what a Server is put together from. All are required but Risk and Stopping.
type Parts struct {
	Routes      interface{ Snapshot() *routes.Snapshot }
	Identity    *identity.Verifier
	Permits     *permit.Office
	Receipts    *signed.Ring
	PaymentKeys *signed.Ring
	Limits      *limit.Limiter
	Networks    *limit.Networks
	SoldOut     *soldout.Cache
	Cells       *proxy.Cells
	Risk        *risk.Feed // nil: nobody judges
	Clock       clock.Clock
	Log         *slog.Logger
	Registry    prometheus.Registerer
	// Stopping, if not nil, is closed when the shutdown begins: long polls then answer.
	Stopping <-chan struct{}
}

// Server answers contract §3. It is an http.Handler, safe for concurrent use.
type Server struct {
	set   Settings
	parts Parts
	clock clock.Clock
	log   *slog.Logger

	router  *router
	cors    *cors
	collate *collapse
	running *limit.Inflight
	waiters *limit.Inflight
	crowds  *limit.Crowds
	metrics *metrics
	buffers sync.Pool
	tracer  trace.Tracer
}

// New puts a Server together.
func New(set Settings, p Parts) *Server {
	s := &Server{
		set: set, parts: p, clock: p.Clock, log: p.Log,
		router: newRouter(), cors: newCORS(set.Origins), collate: newCollapse(),
		running: limit.NewInflight(set.MaxRunning), waiters: limit.NewInflight(set.MaxWaiters),
		crowds:  limit.NewCrowds(set.MaxPerUser, set.MaxPerDevice, set.MaxPerNetwork),
		tracer:  otel.Tracer(tracerName),
		buffers: sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }},
	}
	s.metrics = newMetrics(p.Registry, func() float64 { return float64(s.running.Now()) })
	return s
}

// ServeHTTP answers one call: find it, hand it through, write the reply, count it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := s.clock.Now()
	e, open, allow := s.router.find(r.Method, r.URL)
	name := "other"
	if e != nil {
		name = e.name
	}
	within, span := s.begin(r, name)
	defer span.End()
	c := &call{w: w, r: r, within: within, now: began, lang: language(r.Header.Get("Accept-Language")), params: open}
	if sc := span.SpanContext(); sc.HasTraceID() {
		c.traceID = sc.TraceID().String()
	}
	s.cors.mark(w.Header(), r)
	var rep reply
	switch {
	case e != nil:
		rep = s.guarded(e, c) //nolint:contextcheck // the call carries its own
	case allow != "" && r.Method == http.MethodOptions:
		rep = reply{layer: atHTTP, code: "OPTIONS", status: http.StatusNoContent, allow: allow}
		s.cors.preflight(w.Header(), r, allow)
	case allow != "":
		rep = at(atHTTP, MethodNotAllowed).reply()
		rep.allow = allow
	default:
		rep = at(atHTTP, NotFound).reply()
	}
	s.write(c, &rep)
	finish(span, e, r, &rep)
	s.metrics.answered(name, &rep, s.clock.Now().Sub(began))
	s.report(c, name, &rep)
}

// guarded runs a handler within the bound on calls at once; a handler that panics is answered 500
// and logged, and takes nobody else down.
func (s *Server) guarded(e *endpoint, c *call) (rep reply) {
	if !s.running.Enter() {
		return at(atHTTP, Throttled).reply()
	}
	defer s.running.Leave()
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(c.ctx(), "a handler panicked", slog.String(telemetry.Event, "panic"),
				slog.String("call", e.name), slog.String(telemetry.Error, fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			rep = at(atHTTP, Internal).reply()
		}
	}()
	c.view = s.parts.Routes.Snapshot()
	return e.handle(s, c)
}

// write sends the reply with the headers that every answer has.
func (s *Server) write(c *call, rep *reply) {
	buf := s.buffers.Get().(*[]byte) //nolint:forcetypeassert // the pool's own
	defer func() { s.buffers.Put(buf) }()
	h := c.w.Header()
	body := rep.body
	media := "application/json"
	if rep.problem != nil {
		*buf = rep.problem.render(h, (*buf)[:0], c.lang, c.traceID)
		body, media = *buf, "application/problem+json"
		h.Set("Content-Language", [2]string{"en", "zh-CN"}[c.lang])
	}
	if rep.media != "" {
		media = rep.media
	}
	cache := "no-store"
	if rep.cache != "" {
		cache = rep.cache
	}
	h.Set("Cache-Control", cache)
	if s.stopping() {
		h.Set("Connection", "close") // HTTP/2 is told to go away
	}
	set(h, "Trace-Id", c.traceID)
	set(h, "Location", rep.location)
	set(h, "Allow", rep.allow)
	if rep.replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	if rep.status == http.StatusNoContent {
		c.w.WriteHeader(rep.status)
		return
	}
	h.Set("Content-Type", media)
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(rep.status)
	_, _ = c.w.Write(body) //nolint:gosec // JSON with its own content type; a client that hung up is no error of ours
}

func set(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}
