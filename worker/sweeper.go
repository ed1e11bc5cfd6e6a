package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
)

// sweepPeriod is the longest time between two sweeps of a shard; a sweep that
// knows of something due sooner comes back then.
const (
	sweepPeriod = time.Second
	sweepLimit  = 200
)

// sweep revives what is due in one shard. Every worker does it; no leader is needed.
func (w *Worker) sweep(shard int) {
	log := logging.NewThrottle(w.log.WithField(tasks.LogShard, shard))
	for !w.stopped() {
		next := w.sweepOnce(shard, log)
		w.rest(shard, next)
	}
}

// rest waits for the next round; a little jitter keeps many workers from
// sweeping in step.
func (w *Worker) rest(shard int, next time.Duration) {
	t := time.NewTimer(next + rand.N(10*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.kicks[shard]:
	case <-w.stopping:
	}
}

func (w *Worker) sweepOnce(shard int, log *logging.Throttle) time.Duration {
	ctx, cancel := context.WithTimeout(w.work, claimTimeout)
	defer cancel()
	s, err := w.cfg.Store.Sweep(ctx, shard, sweepLimit)
	if err != nil {
		log.Warn("worker.sweep_failed", err)
		return sweepPeriod
	}
	log.Recovered("worker.sweep_recovered")
	w.metrics.revived.Add(float64(s.Expired))
	if s.Expired > 0 {
		w.log.WithField(tasks.LogShard, shard).WithField(tasks.LogCount, s.Expired).Warn("lane.lease_expired")
	}
	if s.Next < 0 {
		return sweepPeriod
	}
	return min(s.Next, sweepPeriod)
}
