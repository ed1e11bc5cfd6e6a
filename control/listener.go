package control

import (
	"context"
	"runtime"
	"time"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// claimWait bounds one blocking wait, and with it how long an idle answerer needs
	// to notice a stop.
	claimWait = time.Second
	// claimTimeout bounds one claim beyond its wait. Claims whose reply is lost come
	// back when their lease ends.
	claimTimeout = 2 * time.Second
	// faultPause keeps a failing Redis from becoming a busy loop.
	faultPause = 200 * time.Millisecond
)

// listen takes questions of one shard whenever a slot is free, and blocks while
// there are none. It looks before it waits, so a wake-up that came earlier is
// never missed.
func (a *Answerer) listen(shard int) {
	log := logging.NewThrottle(a.log.WithField(tasks.LogShard, shard))
	wait := time.Duration(0)
	for !a.stopped() {
		n := a.take(wait > 0)
		if n == 0 {
			return
		}
		claimed, err := a.claim(shard, n, wait)
		if err != nil {
			a.fault(shard, log, err)
			wait = 0
			continue
		}
		a.failing[shard].Store(nil)
		log.Recovered("control.claim_recovered")
		if wait = claimWait; claimed == n {
			wait = 0 // there may be more
		}
	}
}

func (a *Answerer) fault(shard int, log *logging.Throttle, err error) {
	if a.stopped() {
		return
	}
	reason := "control.claim_failed: " + err.Error()
	a.failing[shard].Store(&reason)
	log.Warn("control.claim_failed", err)
	a.pause(faultPause)
}

// take waits for a slot and takes what other slots are free with it, but leaves
// them to the other shards while this one only waits.
func (a *Answerer) take(waiting bool) int {
	select {
	case <-a.slots:
	case <-a.stopping:
		return 0
	}
	n := 1
	if waiting && a.cfg.Exchange.Shards() > 1 {
		return n
	}
	for n < a.cfg.Slots {
		select {
		case <-a.slots:
			n++
		default:
			return n
		}
	}
	return n
}

func (a *Answerer) give(n int) {
	for range n {
		a.slots <- struct{}{}
	}
}

// claim fills up to n slots with questions and gives back the rest.
func (a *Answerer) claim(shard, n int, wait time.Duration) (int, error) {
	// Not cancelled by a stop: what is claimed then must be known, to be given back.
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout+wait)
	defer cancel()
	claims, err := a.cfg.Exchange.Claim(ctx, shard, n, wait)
	received := time.Now()
	a.give(n - len(claims))
	for i := range claims {
		a.evaluations.Go(func() {
			defer a.give(1)
			a.answer(&claims[i], received)
		})
	}
	if len(claims) > 0 {
		// Whoever answers gets to run first: the next question waits for nothing yet.
		runtime.Gosched()
	}
	return len(claims), err
}
