package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
	"github.com/gantry-hooks/gantry/tasks"
)

// clientMetrics count what askers get. The label sets are closed and start at
// zero.
type clientMetrics struct {
	verdicts  *prometheus.CounterVec
	unsettled prometheus.Counter
	waiters   prometheus.Gauge
	seconds   prometheus.Histogram
}

// waitBuckets are those of times until a verdict, in seconds.
var waitBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// newClientMetrics builds the collectors and registers them. Two Clients may share
// a registerer: they share the collectors then.
func newClientMetrics(registerer prometheus.Registerer) (*clientMetrics, error) {
	m := &clientMetrics{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_control_verdicts_total",
			Help: "Verdicts handed to callers, by outcome and by who settled them. The unanswered_ outcomes are questions that nobody answered in time.",
		}, []string{"outcome", "by"}),
		unsettled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gantry_control_unsettled_total",
			Help: "Verdicts that the asker decided alone, because Redis did not answer.",
		}),
		waiters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gantry_control_waiters", Help: "Callers that wait for a verdict now.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gantry_control_verdict_seconds", Help: "Time that callers waited for a verdict, without those that needed none.",
			Buckets: waitBuckets,
		}),
	}
	err := errors.Join(
		collector.Share(registerer, &m.verdicts), collector.Share(registerer, &m.unsettled),
		collector.Share(registerer, &m.waiters), collector.Share(registerer, &m.seconds),
	)
	if err != nil {
		return nil, fmt.Errorf("register control metrics: %w", err)
	}
	for _, outcome := range tasks.VerdictOutcomes() {
		for _, by := range []tasks.VerdictSource{tasks.ByAsker, tasks.ByWorker} {
			m.verdicts.WithLabelValues(string(outcome), string(by))
		}
	}
	return m, nil
}

func (m *clientMetrics) verdict(v *tasks.Verdict) {
	m.verdicts.WithLabelValues(string(v.Outcome), string(v.By)).Inc()
	if v.Unsettled {
		m.unsettled.Inc()
	}
}

// waiting counts one waiting caller until the returned function is called.
func (m *clientMetrics) waiting() (done func()) {
	start := time.Now()
	m.waiters.Inc()
	return func() {
		m.waiters.Dec()
		m.seconds.Observe(time.Since(start).Seconds())
	}
}
