package enrich

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/collector"
)

// metrics counts lookups by result and the payloads that shared one.
type metrics struct {
	found, missing, failed prometheus.Counter
	hits                   prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gantry_email_lookups_total",
		Help: "Questions to the email directory, by result (found, missing, failed).",
	}, []string{"result"})
	hits := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gantry_email_cache_hits_total",
		Help: "Emails wanted that were answered by a result or a pending lookup in the cache.",
	})
	if err := errors.Join(collector.Share(registerer, &lookups), collector.Share(registerer, &hits)); err != nil {
		return nil, fmt.Errorf("register email metrics: %w", err)
	}
	return &metrics{
		found:   lookups.WithLabelValues("found"),
		missing: lookups.WithLabelValues("missing"),
		failed:  lookups.WithLabelValues("failed"),
		hits:    hits,
	}, nil
}
