package control

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
	"github.com/gantry-hooks/gantry/tasks"
)

// evaluatorMetrics count what questions and controls came to. The label sets are
// closed and start at zero.
type evaluatorMetrics struct {
	verdicts *prometheus.CounterVec
	open     *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// transportCodes are the codes that an error of a control can have.
var transportCodes = []tasks.TransportCode{
	tasks.CodeConfiguration, tasks.CodeHTTPError, tasks.CodeInvalidResponse,
	tasks.CodeNetworkError, tasks.CodeResponseTooLarge, tasks.CodeTimeout,
}

// newEvaluatorMetrics builds the collectors and registers them. Two Evaluators
// may share a registerer: they share the collectors then.
func newEvaluatorMetrics(registerer prometheus.Registerer) (*evaluatorMetrics, error) {
	m := &evaluatorMetrics{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_control_evaluations_total", Help: "Questions evaluated in this process, by what they came to.",
		}, []string{"outcome"}),
		open: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_control_failed_open_total", Help: "Controls that failed and let the tool call through, by code.",
		}, []string{"code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gantry_control_reply_seconds", Help: "Time that a control took, by what its reply counts as and the code of an error.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"class", "code"}),
	}
	err := errors.Join(collector.Share(registerer, &m.verdicts), collector.Share(registerer, &m.open), collector.Share(registerer, &m.seconds))
	if err != nil {
		return nil, fmt.Errorf("register evaluator metrics: %w", err)
	}
	for _, outcome := range tasks.VerdictOutcomes() {
		m.verdicts.WithLabelValues(string(outcome))
	}
	for _, class := range []tasks.ControlClass{tasks.ControlAllow, tasks.ControlDeny, tasks.ControlNotification, tasks.ControlCancelled} {
		m.seconds.WithLabelValues(string(class), "")
	}
	for _, code := range transportCodes {
		m.open.WithLabelValues(string(code))
		m.seconds.WithLabelValues(string(tasks.ControlError), string(code))
	}
	return m, nil
}

func (m *evaluatorMetrics) verdict(outcome tasks.VerdictOutcome) {
	m.verdicts.WithLabelValues(string(outcome)).Inc()
}

func (m *evaluatorMetrics) failedOpen(code tasks.TransportCode) {
	m.open.WithLabelValues(string(code)).Inc()
}

func (m *evaluatorMetrics) asked(a *response) {
	m.seconds.WithLabelValues(string(a.reply.Class), string(a.reply.Code())).Observe(a.elapsed.Seconds())
}
