package worker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// metrics are the worker's own; the label sets are closed and start at zero.
type metrics struct {
	deliveries *prometheus.CounterVec
	drains     prometheus.Counter
	lost       prometheus.Counter
	revived    prometheus.Counter
	inFlight   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gantry_deliveries_total", Help: "Deliveries by where they stand after an attempt or a decision, and by failure class.",
		}, []string{"standing", "class"}),
		drains:   prometheus.NewCounter(prometheus.CounterOpts{Name: "gantry_drains_total", Help: "Queues claimed and drained."}),
		lost:     prometheus.NewCounter(prometheus.CounterOpts{Name: "gantry_leases_lost_total", Help: "Steps refused because the lease had ended."}),
		revived:  prometheus.NewCounter(prometheus.CounterOpts{Name: "gantry_leases_expired_total", Help: "Leases of other workers found ended by this worker's sweeps."}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gantry_deliveries_in_flight", Help: "Attempts under way."}),
	}
	for _, s := range []lane.Standing{lane.StandingDelivered, lane.StandingWaiting, lane.StandingDiscarded, lane.StandingDead} {
		m.deliveries.WithLabelValues(string(s), "")
	}
	for _, c := range tasks.FailureClasses() {
		m.deliveries.WithLabelValues(string(lane.StandingParked), string(c))
		m.deliveries.WithLabelValues(string(lane.StandingDead), string(c))
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.deliveries, m.drains, m.lost, m.revived, m.inFlight} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) settled(s lane.Standing, c tasks.FailureClass) {
	m.deliveries.WithLabelValues(string(s), string(c)).Inc()
}

// Counter reads the sizes of a shard; redislane.Store is one.
type Counter interface {
	Counts(ctx context.Context, shard int) (lane.Counts, error)
	Shards() int
}

// QueueCollector reports the sizes of the queues at each scrape. One process of
// a deployment is enough to register it.
type QueueCollector struct {
	store   Counter
	ready   *prometheus.Desc
	due     *prometheus.Desc
	dead    *prometheus.Desc
	blocked *prometheus.Desc
}

// NewQueueCollector makes a collector on a store.
func NewQueueCollector(store Counter) *QueueCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"shard"}, nil)
	}
	return &QueueCollector{
		store:   store,
		ready:   desc("gantry_queues_ready", "Queues that wait for a worker."),
		due:     desc("gantry_queues_due", "Claimed and parked queues and delayed events that somebody must look at later."),
		dead:    desc("gantry_dead_letters", "Dead letters."),
		blocked: desc("gantry_hooks_blocked", "Parked hooks: later deliveries wait behind a failing one."),
	}
}

// Describe sends the descriptions.
func (c *QueueCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.ready, c.due, c.dead, c.blocked} {
		ch <- d
	}
}

// collectTimeout bounds a scrape's look into Redis; a shard that does not answer
// is left out.
const collectTimeout = 2 * time.Second

// Collect reads every shard.
func (c *QueueCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	for shard := range c.store.Shards() {
		n, err := c.store.Counts(ctx, shard)
		if err != nil {
			continue
		}
		label := strconv.Itoa(shard)
		send := func(d *prometheus.Desc, v int64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), label)
		}
		send(c.ready, n.Ready)
		send(c.due, n.Due)
		send(c.dead, n.Dead)
		send(c.blocked, n.Blocked)
	}
}
