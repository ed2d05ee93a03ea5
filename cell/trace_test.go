package cell

import (
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestTraceGoesThroughTheCell: what a customer's traceparent came with at the edge is the trace of the
// admission, of its order behind the log, of its effects and events behind the outbox, and of its closing,
// which nobody asks for.
func TestTraceGoesThroughTheCell(t *testing.T) {
	recorder, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	w, p := selling(t, 2)
	want(t, p.exchange(w.ask("alice", "r1", func(a *pb.Ask) { a.Traceparent = "00-" + trace + "-" + parent + "-01" }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED) // nobody traces him
	p.reaches("alice", "r1", "", pending)
	p.reaches("bob", "r1", "", pending)
	w.exec("UPDATE cellquota.orders SET expires_at = created_at, close_after = created_at") // its 15 minutes are over
	p.reaches("alice", "r1", "", pb.RequestState_REQUEST_STATE_CLOSED)
	ours := []string{"admission.batch", "orders.batch", "outbox.publish", "closer.batch"}
	testkit.Eventually(t, patience, func() error {
		missing := map[string]bool{}
		for _, name := range ours {
			missing[name] = true
		}
		for _, s := range recorder.Ended() {
			if slices.Contains(ours, s.Name()) && (s.SpanContext().TraceID().String() != trace || s.Parent().SpanID().String() != parent) {
				t.Fatalf("span %s belongs to trace %s under %s", s.Name(), s.SpanContext().TraceID(), s.Parent().SpanID())
			}
			delete(missing, s.Name())
		}
		if len(missing) > 0 {
			return fmt.Errorf("no span %v", missing)
		}
		return nil
	})
	rows := w.count("SELECT count(*) FROM cellquota.outbox WHERE event_type IN ('release', 'order-closed') AND traceparent = '00-" + trace + "-" + parent + "-01'")
	if rows != 2 {
		t.Errorf("%d rows of the closing carry the trace", rows)
	}
}
