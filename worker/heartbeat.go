package worker

import (
	"context"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// beat renews the leases of all held queues, one call per shard, until the
// worker is stopped and holds nothing.
func (w *Worker) beat() {
	log := newThrottle(w.log)
	tick := time.NewTicker(w.cfg.Heartbeat)
	defer tick.Stop()
	stopping := w.stopping
	for {
		select {
		case <-tick.C:
		case <-stopping:
			stopping = nil
		}
		shards := w.held.byShard()
		if stopping == nil && len(shards) == 0 {
			return
		}
		for shard, held := range shards {
			if err := w.renew(shard, held); err != nil {
				log.warn("worker.renew_failed", err)
			} else {
				log.recovered("worker.renew_recovered")
			}
		}
	}
}

func (w *Worker) renew(shard int, held []*holding) error {
	ask := make([]lane.Held, len(held))
	byQueue := make(map[lane.Held]*holding, len(held))
	for i, h := range held {
		ask[i] = lane.Held{Queue: h.queue, Token: h.token}
		byQueue[ask[i]] = h
	}
	// A renewal that takes longer than the lease is worth nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.work), w.cfg.Store.Lease())
	defer cancel()
	asked := time.Now()
	lost, err := w.cfg.Store.Extend(ctx, shard, ask)
	if err != nil {
		return err
	}
	for _, l := range lost {
		byQueue[l].cancel(lane.ErrLeaseLost)
		delete(byQueue, l)
	}
	for _, h := range byQueue {
		h.renew(asked)
	}
	return nil
}
