package shard

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// settleBuckets reach as far as customers may take to pay: a reservation lives minutes, not seconds.
var settleBuckets = slices.Concat(telemetry.DurationBuckets, []float64{120, 300, 600, 900, 1800, 3600})

// metrics of the shard. Labels are verbs, outcomes, reasons and states of closed lists.
type metrics struct {
	transactions  *prometheus.CounterVec   // verb, outcome
	txDuration    *prometheus.HistogramVec // verb
	lockWait      *prometheus.HistogramVec // verb
	commit        prometheus.Histogram     // whole transaction of a batch of orders
	settle        prometheus.Histogram     // from reservation to confirmation or release
	stockFailures *prometheus.CounterVec   // reason
	reservations  *prometheus.GaugeVec     // state
	refunds       prometheus.Counter
	conflicts     prometheus.Counter
	unreadable    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, pool *pgxpool.Pool) (*metrics, error) {
	hist := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: telemetry.Namespace, Name: name, Help: help, Buckets: telemetry.DurationBuckets}
	}
	m := &metrics{
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "shard_transactions_total",
			Help: "Attempts of write transactions on the shard, by verb and outcome.",
		}, []string{"verb", "outcome"}),
		txDuration: prometheus.NewHistogramVec(hist("shard_transaction_duration_seconds",
			"Time of a write on the shard with all its attempts."), []string{"verb"}),
		lockWait: prometheus.NewHistogramVec(hist("lock_wait_seconds",
			"Time a transaction waited for its row locks, by the database's clock."), []string{"verb"}),
		commit: prometheus.NewHistogram(hist("order_commit_duration_seconds",
			"Time of the transaction of one batch of orders, from begin to the commit's answer.")),
		settle: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace, Name: "reservation_settle_seconds", Buckets: settleBuckets,
			Help: "Time from a reservation's creation until it was confirmed or released, by the database's clock; counted once that is committed.",
		}),
		stockFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "stock_update_failures_total",
			Help: "Changes of a stock row that were refused, by reason.",
		}, []string{"reason"}),
		reservations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "reservations",
			Help: "Units by state of their reservation, as of the last read of the stock rows.",
		}, []string{"state"}),
		refunds: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "refunds_total", Help: "Refunds asked of the payment channel, each once, whoever brought the word of the payment.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "payment_close_conflicts_total", Help: "Payments that succeeded after their order was closed.",
		}),
	}
	m.unreadable = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: telemetry.Namespace, Name: "rules_unreadable",
		Help: "Campaigns whose rules the shard has and nobody can read: nothing of theirs is sold, and messages of theirs are parked.",
	})
	conns := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: telemetry.Namespace, Name: "shard_connections_in_use", Help: "Connections of the pool that are in use.",
	}, func() float64 { return float64(pool.Stat().AcquiredConns()) })
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.transactions, m.txDuration, m.lockWait, m.commit, m.settle, m.stockFailures, m.reservations, m.refunds, m.conflicts, m.unreadable, conns} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) attempt(verb string, err error) {
	m.transactions.WithLabelValues(verb, outcomeOf(err)).Inc()
}

func (m *metrics) duration(verb string, d time.Duration) {
	m.txDuration.WithLabelValues(verb).Observe(d.Seconds())
}

// settled notes what a committed run of steps settled. Of a run whose commit's outcome stayed unknown,
// and was then found to have happened, nothing is noted.
func (m *metrics) settled(r *stepRun) {
	for _, c := range r.out.changes {
		if c.State != c.was.State {
			m.settle.Observe(max(0, c.now.Sub(c.CreatedAt).Seconds()))
		}
	}
	for i := range r.out.refunds {
		if f := &r.out.refunds[i]; f.state == refundPending && !f.lowered && !f.rest {
			m.refunds.Inc()
			if f.cause == RefundAfterClose {
				m.conflicts.Inc()
			}
		}
	}
}

// outcomeOf classifies for the metric only.
func outcomeOf(err error) string {
	if err == nil {
		return "committed"
	}
	if errors.Is(err, ErrUnknownCommit) {
		return "unknown"
	}
	if retryable(err) {
		return "contention"
	}
	err = translate(err)
	switch {
	case errors.Is(err, ErrFenced):
		return "fenced"
	case errors.Is(err, ErrState):
		return "state"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrBadData):
		return "bad_data"
	}
	return "refused"
}
