package approval

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
)

// The outcomes of a transition in gantry_approval_transitions_total, beside those
// of Outcome.
const (
	outcomeRefused = "refused"
	outcomeError   = "error"
)

type metrics struct{ transitions *prometheus.CounterVec }

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	transitions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gantry_approval_transitions_total",
		Help: "Claims, publications and restorations of approvals, by what became of them.",
	}, []string{"transition", "outcome"})
	for _, transition := range []string{"claim", "publish", "restore"} {
		for _, outcome := range []string{string(Applied), string(Idempotent), string(Skipped), outcomeRefused, outcomeError} {
			transitions.WithLabelValues(transition, outcome)
		}
	}
	err := collector.Share(registerer, &transitions)
	return &metrics{transitions}, err
}

func (m *metrics) done(transition string, outcome Outcome, err error) {
	label := string(outcome)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		label = outcomeRefused
	case err != nil:
		label = outcomeError
	}
	m.transitions.WithLabelValues(transition, label).Inc()
}
