package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
)

// What became of an evaluation, beside the fates of a settlement.
const (
	// fateEnded: nobody waited any more, and nothing was written.
	fateEnded Fate = "ended"
	// fateReleased: the question was given back.
	fateReleased Fate = "released"
	// fateGivenUp: Redis did not take the verdict in time.
	fateGivenUp Fate = "given_up"
)

// answererMetrics count what workers answer. The label sets are closed and start
// at zero.
type answererMetrics struct {
	answers   *prometheus.CounterVec
	takenOver prometheus.Counter
	expired   prometheus.Counter
	inFlight  prometheus.Gauge
	seconds   prometheus.Histogram
}

// newAnswererMetrics builds the collectors and registers them. Two Answerers may
// share a registerer: they share the collectors then.
func newAnswererMetrics(registerer prometheus.Registerer) (*answererMetrics, error) {
	m := &answererMetrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_control_answers_total",
			Help: "Questions that this worker took, by what became of its verdict: won, stood (another was first), late, ended (nobody waited), released, given_up.",
		}, []string{"fate"}),
		takenOver: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gantry_control_taken_over_total", Help: "Questions taken that another worker had in hand before.",
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gantry_control_leases_expired_total", Help: "Leases of other workers found ended by this worker's sweeps.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gantry_control_in_flight", Help: "Questions in this worker's hands.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gantry_control_answer_seconds", Help: "Time from taking a question to settling it.", Buckets: waitBuckets,
		}),
	}
	err := errors.Join(
		collector.Share(registerer, &m.answers), collector.Share(registerer, &m.takenOver), collector.Share(registerer, &m.expired),
		collector.Share(registerer, &m.inFlight), collector.Share(registerer, &m.seconds),
	)
	if err != nil {
		return nil, fmt.Errorf("register answerer metrics: %w", err)
	}
	for _, fate := range []Fate{FateWon, FateStood, FateLate, fateEnded, fateReleased, fateGivenUp} {
		m.answers.WithLabelValues(string(fate))
	}
	return m, nil
}

func (m *answererMetrics) settled(f Fate) { m.answers.WithLabelValues(string(f)).Inc() }

// answering counts one question in hand until the returned function is called.
func (m *answererMetrics) answering() (done func()) {
	start := time.Now()
	m.inFlight.Inc()
	return func() {
		m.inFlight.Dec()
		m.seconds.Observe(time.Since(start).Seconds())
	}
}
