package deferred

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
)

// The outcomes of a callback in gantry_deferred_completions_total, beside those of
// Outcome: a publication is split by what was published.
const (
	outcomeDenied = "denied"
	outcomeError  = "error"
)

// metrics counts what passes through a Service. No label holds an id.
type metrics struct {
	completions *prometheus.CounterVec
	waiters     prometheus.Gauge
	waits       prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		completions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_deferred_completions_total",
			Help: "Callbacks with deferred results, by what became of them.",
		}, []string{"outcome"}),
		waiters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gantry_deferred_waiters",
			Help: "Callers that wait for a deferred result now.",
		}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gantry_deferred_wait_seconds",
			Help:    "Time that callers waited for a deferred result.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
	}
	for _, outcome := range []string{string(Published), outcomeDenied, string(Duplicate), string(Cancelled), outcomeError} {
		m.completions.WithLabelValues(outcome)
	}
	return m, errors.Join(collector.Share(registerer, &m.completions), collector.Share(registerer, &m.waiters), collector.Share(registerer, &m.waits))
}

func (m *metrics) completed(done Completed, err error) {
	outcome := string(done.Outcome)
	switch {
	case err != nil:
		outcome = outcomeError
	case done.Outcome == Published && done.Row.Denied:
		outcome = outcomeDenied
	}
	m.completions.WithLabelValues(outcome).Inc()
}

// waiting counts one waiter until the returned function is called.
func (m *metrics) waiting() (done func()) {
	start := time.Now()
	m.waiters.Inc()
	return func() {
		m.waiters.Dec()
		m.waits.Observe(time.Since(start).Seconds())
	}
}
