package toolcall

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
	"github.com/gantry-hooks/gantry/tasks"
)

// statusError is the label of a call that could not be decided.
const statusError = "error"

// metrics counts what passes through a Runner. No label holds an id.
type metrics struct {
	calls    *prometheus.CounterVec
	attempts prometheus.Counter
	failures *prometheus.CounterVec
	pending  prometheus.Gauge
}

// newMetrics builds the collectors, each label at zero, and registers them. Two
// Runners may share a registerer: they share the collectors then.
func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_toolcall_calls_total",
			Help: "Whole tool calls, by what became of them.",
		}, []string{"status"}),
		attempts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gantry_toolcall_attempts_total",
			Help: "Executions of tools, retries within a call included.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_toolcall_notification_failures_total",
			Help: "Notifications of tool calls that did not reach everybody, by type.",
		}, []string{"hook_type"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gantry_toolcall_background",
			Help: "Hand-overs of notifications that wait or run now.",
		}),
	}
	err := errors.Join(
		collector.Share(registerer, &m.calls), collector.Share(registerer, &m.attempts),
		collector.Share(registerer, &m.failures), collector.Share(registerer, &m.pending),
	)
	if err != nil {
		return nil, err
	}
	for _, status := range Statuses() {
		m.calls.WithLabelValues(string(status))
	}
	m.calls.WithLabelValues(statusError)
	for _, t := range []tasks.HookType{tasks.BeforeToolCall, tasks.AfterToolCall, tasks.OnToolCallError} {
		m.failures.WithLabelValues(string(t))
	}
	return m, nil
}
