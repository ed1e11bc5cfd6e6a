package enrich

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts lookups by result and the payloads that shared one.
type metrics struct {
	found, missing, failed prometheus.Counter
	hits                   prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	lookups, err := register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gantry_email_lookups_total",
		Help: "Questions to the email directory, by result (found, missing, failed).",
	}, []string{"result"}))
	if err != nil {
		return nil, err
	}
	hits, err := register(registerer, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gantry_email_cache_hits_total",
		Help: "Emails wanted that were answered by a result or a pending lookup in the cache.",
	}))
	if err != nil {
		return nil, err
	}
	return &metrics{
		found:   lookups.WithLabelValues("found"),
		missing: lookups.WithLabelValues("missing"),
		failed:  lookups.WithLabelValues("failed"),
		hits:    hits,
	}, nil
}

// register returns c, or the collector of the same name that another Builder of
// this process registered before.
func register[C prometheus.Collector](registerer prometheus.Registerer, c C) (C, error) {
	if registerer == nil {
		return c, nil
	}
	err := registerer.Register(c)
	var taken prometheus.AlreadyRegisteredError
	if errors.As(err, &taken) {
		if earlier, ok := taken.ExistingCollector.(C); ok {
			return earlier, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register email metrics: %w", err)
	}
	return c, nil
}
