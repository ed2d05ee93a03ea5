package edge

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cellquota/cellquota/edge/api"
	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/internal/clock"
)

// A caller's W3C trace goes on to the home cell, under a span of the edge's own.
func TestTraceparentGoesToTheCell(t *testing.T) {
	r := start(t)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	user := celltest.Homed("tracy", 1, 0, 2)[0]
	res, body := r.raw(http.MethodPost, askPath, ask("r1", 1, r.permit(user)), with(bearer(r.token(user)), "traceparent", "00-"+trace+"-"+parent+"-01"))
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	_, asked := r.cells[0].Asked()
	if got := asked.GetTraceparent(); !strings.HasPrefix(got, "00-"+trace+"-") || strings.Contains(got, parent) {
		t.Errorf("the cell was asked under %q", got)
	}
}

// A call is one span of the edge under its caller's, with what it came to; who asked for what is in no
// attribute.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	earlier := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	t.Cleanup(func() { otel.SetTracerProvider(earlier) })
	face := api.New(api.Settings{MaxRunning: 1}, api.Parts{
		Routes: noRoutes{}, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	call := httptest.NewRequest(http.MethodGet, "/v1/orders/cell-1.osecret", nil)
	call.Header.Set("traceparent", parent)
	call.Header.Set("baggage", "evil=1")
	answer := httptest.NewRecorder()
	face.ServeHTTP(answer, call)
	face.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/nowhere/secret", nil))
	spans := recorder.Ended()
	if len(spans) != 2 || spans[0].Name() != "get_order" || spans[1].Name() != "other" {
		t.Fatalf("spans are %v", spans)
	}
	if got := spans[0].Parent().SpanID().String(); got != "b7ad6b7169203331" || spans[0].SpanContext().TraceID().String() != answer.Header().Get("Trace-Id") {
		t.Errorf("the caller's span is %s", got)
	}
	want := map[string]string{"http.request.method": "GET", "http.response.status_code": "503", "cellquota.layer": "campaign", "cellquota.code": "NOT_READY", "http.route": "/v1/orders/{order}"}
	for _, a := range spans[0].Attributes() {
		if want[string(a.Key)] != a.Value.String() {
			t.Errorf("%s is %q", a.Key, a.Value.String())
		}
		delete(want, string(a.Key))
	}
	if len(want) > 0 || spans[0].Status().Code != codes.Error {
		t.Errorf("not there: %v; status %v", want, spans[0].Status())
	}
	for _, s := range spans {
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "secret") || strings.Contains(a.Value.String(), "BREW") {
				t.Errorf("%s has what a client sent: %s", a.Key, a.Value.String())
			}
		}
	}
}

// noRoutes is an edge that has heard nothing yet.
type noRoutes struct{}

func (noRoutes) Snapshot() *routes.Snapshot { return nil }
