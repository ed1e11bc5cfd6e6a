package webhook

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
)

// The labels of attempts that did not fail.
const (
	labelDelivered = "delivered"
	labelCancelled = "cancelled"
)

// metrics count attempts. The label set is closed: the failure classes and the
// two outcomes without one.
type metrics struct {
	attempts map[string]prometheus.Counter
	seconds  prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gantry_webhook_attempts_total", Help: "Attempts at webhooks by failure class, delivered or cancelled.",
	}, []string{"class"})
	m := &metrics{
		attempts: map[string]prometheus.Counter{},
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gantry_webhook_attempt_seconds", Help: "Time from the start of an attempt to its outcome, cancelled ones left out.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
	}
	for _, label := range []string{labelDelivered, labelCancelled} {
		m.attempts[label] = attempts.WithLabelValues(label)
	}
	for _, class := range tasks.FailureClasses() {
		m.attempts[string(class)] = attempts.WithLabelValues(string(class))
	}
	if registerer == nil {
		return m, nil
	}
	for _, collector := range []prometheus.Collector{attempts, m.seconds} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register webhook metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observe(result *Result) {
	label := string(result.Class)
	switch {
	case result.Delivered:
		label = labelDelivered
	case result.Cancelled:
		label = labelCancelled
	}
	if counter := m.attempts[label]; counter != nil {
		counter.Inc()
	}
	if !result.Cancelled {
		m.seconds.Observe(result.Elapsed.Seconds())
	}
}
