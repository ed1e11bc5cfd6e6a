package worker

import (
	"context"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// waitTimeout bounds one blocking wait, and with it how long an idle worker
// needs to notice a stop.
const waitTimeout = time.Second

// faultPause keeps a failing Redis or configuration from becoming a busy loop.
const faultPause = 500 * time.Millisecond

// listen claims ready queues of one shard whenever a slot is free, and blocks
// while there are none. It looks before it waits, so a wake-up that came
// earlier is never missed.
func (w *Worker) listen(shard int) {
	log := logging.NewThrottle(w.log.WithField(tasks.LogShard, shard))
	wait := time.Duration(0)
	for !w.stopped() {
		if _, err := w.cfg.EnvironmentHooks(); err != nil {
			// Without valid environment hooks nobody knows whom an event must reach.
			w.fault(shard, log, "worker.environment_invalid", err)
			continue
		}
		n := w.take()
		if n == 0 {
			return
		}
		if wait > 0 {
			n = w.keep(n)
		}
		claimed, err := w.claim(shard, n, wait)
		if err != nil {
			w.fault(shard, log, "worker.claim_failed", err)
			wait = 0
			continue
		}
		w.health.clear(shard)
		log.Recovered("worker.recovered")
		if wait = waitTimeout; claimed == n {
			wait = 0 // there may be more
		}
	}
}

// keep gives back the slots that a waiting listener must not hold: with several
// shards, all but one.
func (w *Worker) keep(n int) int {
	if w.cfg.Store.Shards() == 1 {
		return n
	}
	w.give(n - 1)
	return 1
}

func (w *Worker) fault(shard int, log *logging.Throttle, event string, err error) {
	if errors.Is(err, context.Canceled) && w.stopped() {
		return
	}
	w.health.set(shard, event+": "+err.Error())
	log.Warn(event, err)
	w.pause(faultPause)
}

// take waits for a slot and takes what other slots are free with it.
func (w *Worker) take() int {
	select {
	case <-w.slots:
	case <-w.stopping:
		return 0
	}
	n := 1
	for n < w.cfg.Concurrency {
		select {
		case <-w.slots:
			n++
		default:
			return n
		}
	}
	return n
}

func (w *Worker) give(n int) {
	for range n {
		w.slots <- struct{}{}
	}
}

// claimTimeout bounds one claim. A claim whose reply is lost costs its queues
// one lease.
const claimTimeout = 3 * time.Second

// claim fills up to n slots with queues and gives back the rest.
// With a wait it blocks until there is a queue, or for so long.
func (w *Worker) claim(shard, n int, wait time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(w.work, claimTimeout+wait)
	defer cancel()
	asked := time.Now()
	var claims []lane.Claim
	var err error
	if wait > 0 {
		var waited time.Duration
		claims, waited, err = w.cfg.Store.Await(ctx, shard, n, w.cfg.Batch, wait)
		asked = asked.Add(waited)
	} else {
		claims, err = w.cfg.Store.Claim(ctx, shard, n, w.cfg.Batch)
	}
	w.give(n - len(claims))
	for _, c := range claims {
		h := w.held.add(w.work, c, asked)
		go func() {
			defer w.give(1)
			defer w.held.remove(h)
			w.drain(h, c)
		}()
	}
	return len(claims), err
}

// drain hands a claim to the drainer of its kind.
func (w *Worker) drain(h *holding, c lane.Claim) {
	d := &drainer{Worker: w, holding: h, claim: c, now: c.Now, at: time.Now(), began: time.Now()}
	w.metrics.drains.Inc()
	if c.Queue.Lane() {
		(&laneDrain{drainer: d}).run()
	} else {
		(&parkedDrain{drainer: d}).run()
	}
}
