package audit

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
)

const (
	// MaxCounts bounds how many (actor, method) one minute counts apart; what comes
	// beyond is counted under the actor and method "other".
	MaxCounts = 1_000
	// Other is the actor and method of what is not counted apart.
	Other = "other"
	// Nobody is the actor of calls without a principal.
	Nobody = "unauthenticated"

	flushEvery = time.Minute
)

// refusedCodes are the answers that refuse what a caller wanted. What is not
// there (NOT_FOUND) or did not work (UNAVAILABLE and the like) is no refusal.
var refusedCodes = []codes.Code{
	codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition,
	codes.AlreadyExists, codes.Aborted, codes.ResourceExhausted, codes.OutOfRange,
}

// Sink writes counts. store.Store implements it.
type Sink interface {
	PutRefusals(ctx context.Context, counts []core.Audit) error
}

// Refusals counts refused calls and writes the counts once a minute. Safe for
// concurrent use; Refused never waits for a store.
type Refusals struct {
	sink    Sink
	clock   clock.Clock
	log     *slog.Logger
	refused *prometheus.CounterVec
	lost    prometheus.Counter

	mu     sync.Mutex
	counts map[counted]core.Audit
}

type counted struct {
	minute        time.Time
	actor, method string
}

// NewRefusals makes a counter; registry nil: no metrics.
func NewRefusals(sink Sink, c clock.Clock, log *slog.Logger, registry prometheus.Registerer) (*Refusals, error) {
	r := &Refusals{sink: sink, clock: c, log: log, counts: map[counted]core.Audit{}}
	r.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "refusals_total", Help: "Calls that were refused to their callers, by gRPC code.",
	}, []string{"code"})
	r.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "refusals_lost_total", Help: "Refused calls whose count could not be written to etcd: the audit does not show them.",
	})
	if registry == nil {
		return r, nil
	}
	if err := registry.Register(r.refused); err != nil {
		return nil, err
	}
	return r, registry.Register(r.lost)
}

// Refused takes a call that failed; transport.ServerOptions.Failed calls it. What
// is no refusal is left alone.
func (r *Refusals) Refused(p transport.Principal, method string, err error) {
	code := status.Code(rpcstatus.ToStatus(err))
	if !slices.Contains(refusedCodes, code) {
		return
	}
	r.refused.WithLabelValues(code.String()).Inc()
	key := counted{minute: r.clock.Now().UTC().Truncate(time.Minute), actor: cmp.Or(p.Name, Nobody), method: method}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.counts[key]; !known && len(r.counts) >= MaxCounts {
		key.actor, key.method = Other, Other
	}
	a := r.counts[key]
	a.At, a.Actor, a.Method, a.Refusal = key.minute, key.actor, key.method, rpcstatus.Reason(err)
	a.Refusals++
	r.counts[key] = a
}

// Run flushes once a minute until ctx ends.
func (r *Refusals) Run(ctx context.Context) error {
	tick := r.clock.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			_ = r.Flush(ctx) // said and counted there
		}
	}
}

// Flush writes what was counted so far and forgets it, written or not. It is also
// the hook of the shutdown: after the last call, while etcd is still there.
func (r *Refusals) Flush(ctx context.Context) error {
	r.mu.Lock()
	taken := r.counts
	r.counts = map[counted]core.Audit{}
	r.mu.Unlock()
	if len(taken) == 0 {
		return nil
	}
	counts, calls := make([]core.Audit, 0, len(taken)), int64(0)
	for _, a := range taken {
		counts, calls = append(counts, a), calls+a.Refusals
	}
	slices.SortFunc(counts, func(a, b core.Audit) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Method, b.Method))
	})
	err := r.sink.PutRefusals(ctx, counts)
	if err != nil {
		r.lost.Add(float64(calls))
		r.log.WarnContext(ctx, "counts of refused calls were lost", append([]any{telemetry.Event, "refusals_lost", "calls", calls}, telemetry.Failure(err, rpcstatus.Reason(err), false)...)...)
	}
	return err
}
