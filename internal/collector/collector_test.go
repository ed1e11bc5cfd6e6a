package collector_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gantry-hooks/gantry/internal/collector"
)

func counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "events_total", Help: "Events."})
}

func TestShareCountsIntoOneCollector(t *testing.T) {
	registry := prometheus.NewRegistry()
	first, second := counter(), counter()
	for _, c := range []*prometheus.Counter{&first, &second} {
		if err := collector.Share(registry, c); err != nil {
			t.Fatalf("share: %v", err)
		}
	}
	first.Inc()
	second.Inc()
	if got := testutil.ToFloat64(first); got != 2 {
		t.Fatalf("the shared counter is at %v, want 2", got)
	}
}

func TestShareRefusesAnotherKind(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter())
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "events_total", Help: "Events."})
	mine := gauge
	err := collector.Share(registry, &gauge)
	if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); !taken || gauge != mine {
		t.Fatalf("share gave %v, want an AlreadyRegisteredError and the gauge left alone", err)
	}
}

func TestShareWithoutRegisterer(t *testing.T) {
	c := counter()
	if err := collector.Share(nil, &c); err != nil {
		t.Fatalf("share with nobody: %v", err)
	}
}
