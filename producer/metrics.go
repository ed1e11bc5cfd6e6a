package producer

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
)

// The outcomes of an event in gantry_producer_events_total.
const (
	eventAppended    = "appended"
	eventDuplicate   = "duplicate"
	eventSkipped     = "skipped"
	eventRefused     = "refused"
	eventUnavailable = "unavailable"
)

// metrics counts what passes through a Dispatcher. No label holds an id.
type metrics struct {
	events     *prometheus.CounterVec
	dispatches *prometheus.CounterVec
	critical   prometheus.Counter
	joins      prometheus.Counter
	waiters    prometheus.Gauge
	waits      prometheus.Histogram
}

// newMetrics builds the collectors, each label at zero, and registers them. Two
// Dispatchers may share a registerer: they share the collectors then.
func newMetrics(registerer prometheus.Registerer, mode Mode) (*metrics, error) {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_producer_events_total",
			Help: "Events handed to the queue, by what became of them.",
		}, []string{"outcome"}),
		dispatches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_producer_dispatches_total",
			Help: "Calls of Dispatch, by mode.",
		}, []string{"mode"}),
		critical: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gantry_producer_critical_errors_total",
			Help: "Critical delivery errors raised to callers.",
		}),
		joins: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gantry_producer_joins_total",
			Help: "Dispatches that joined an event stored before.",
		}),
		waiters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gantry_producer_waiters",
			Help: "Callers that wait for an event now.",
		}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gantry_producer_wait_seconds",
			Help:    "Time that callers waited for an event.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
	if err := m.register(registerer); err != nil {
		return nil, err
	}
	for _, outcome := range []string{eventAppended, eventDuplicate, eventSkipped, eventRefused, eventUnavailable} {
		m.events.WithLabelValues(outcome)
	}
	m.dispatches.WithLabelValues(string(mode))
	return m, nil
}

// register registers each collector or takes over the one that is there.
func (m *metrics) register(registerer prometheus.Registerer) error {
	return errors.Join(
		collector.Share(registerer, &m.events),
		collector.Share(registerer, &m.dispatches),
		collector.Share(registerer, &m.critical),
		collector.Share(registerer, &m.joins),
		collector.Share(registerer, &m.waiters),
		collector.Share(registerer, &m.waits),
	)
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

// event counts n events of one outcome.
func (m *metrics) event(outcome string, n int) {
	m.events.WithLabelValues(outcome).Add(float64(n))
}
