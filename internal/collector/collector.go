// Package collector registers Prometheus collectors that several objects of one
// process count into.
package collector

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Share registers *collector, or replaces it by the one of the same name and type
// that was registered before, so that two objects with one registerer count into
// the same collectors. A nil registerer takes nothing. The error is that of a
// refused registration.
func Share[C prometheus.Collector](registerer prometheus.Registerer, collector *C) error {
	if registerer == nil {
		return nil
	}
	err := registerer.Register(*collector)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, same := taken.ExistingCollector.(C); same {
			*collector = existing
			return nil
		}
	}
	return err
}
