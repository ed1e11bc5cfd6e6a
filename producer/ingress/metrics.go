package ingress

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
)

// metrics counts requests. A route is a pattern with its method, so that no
// label holds an id.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// newMetrics builds and registers the collectors. Two APIs may share a
// registerer: they share the collectors then.
func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_http_requests_total",
			Help: "HTTP requests, by route and status code.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gantry_http_request_seconds",
			Help:    "Time from a request's headers to the end of its answer, waiting included, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"route"}),
	}
	return m, errors.Join(collector.Share(registerer, &m.requests), collector.Share(registerer, &m.seconds))
}

// observe counts one request.
func (m *metrics) observe(route string, status int, elapsed time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(elapsed.Seconds())
}
