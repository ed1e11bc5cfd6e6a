package control

import (
	"context"
	"time"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

// beat renews the leases of what is held of one shard, in one call, and cuts off
// what nobody waits for any more. Each shard has its own beat, so that one that
// does not answer costs no other its leases.
func (a *Answerer) beat(shard int) {
	log := logging.NewThrottle(a.log.WithField(tasks.LogShard, shard))
	tick := time.NewTicker(a.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-a.settling.Done():
			return
		}
		held := a.inHand.of(shard)
		if len(held) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(a.settling, attemptTimeout)
		ended, err := a.cfg.Exchange.Renew(ctx, shard, held)
		cancel()
		if err != nil {
			log.Warn("control.renew_failed", err)
			continue
		}
		log.Recovered("control.renew_recovered")
		for _, h := range ended {
			a.inHand.end(h)
		}
	}
}

// sweep offers the questions of dead workers again. Every worker does it; no
// leader is needed.
func (a *Answerer) sweep(shard int) {
	log := logging.NewThrottle(a.log.WithField(tasks.LogShard, shard))
	for !a.stopped() {
		a.sweepOnce(shard, log)
		// Jitter keeps many workers from sweeping in step.
		a.pause(wait.Jitter(a.cfg.Sweep))
	}
}

func (a *Answerer) sweepOnce(shard int, log *logging.Throttle) {
	ctx, cancel := context.WithTimeout(a.settling, attemptTimeout)
	defer cancel()
	s, err := a.cfg.Exchange.Sweep(ctx, shard)
	if err != nil {
		log.Warn("control.sweep_failed", err)
		return
	}
	log.Recovered("control.sweep_recovered")
	a.metrics.expired.Add(float64(s.Again + s.GivenUp))
	if s.Again+s.GivenUp > 0 {
		a.log.WithField(tasks.LogShard, shard).WithField(tasks.LogCount, s.Again+s.GivenUp).Warn("control.lease_expired")
	}
}
