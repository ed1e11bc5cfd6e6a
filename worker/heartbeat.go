package worker

import (
	"context"
	"time"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// beat renews the leases of the held queues of one shard, until the worker has
// stopped. Each shard has its own beat, so that one that does not answer costs no
// other its leases.
func (w *Worker) beat(shard int) {
	log := logging.NewThrottle(w.log.WithField(tasks.LogShard, shard))
	tick := time.NewTicker(w.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.settling.Done():
			return
		}
		if held := w.held.of(shard); len(held) > 0 {
			if err := w.renew(shard, held); err != nil {
				log.Warn("worker.renew_failed", err)
			} else {
				log.Recovered("worker.renew_recovered")
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
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.Store.Lease())
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
