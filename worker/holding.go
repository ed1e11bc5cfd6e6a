package worker

import (
	"context"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// safety is how long before its end a lease counts as over: no delivery starts
// in that time, so that a paused worker cannot come back and send.
const safety = time.Second

// holding is one claimed queue. Its drainer and the heartbeat share it.
type holding struct {
	queue lane.Queue
	token int64
	// ctx ends when the lease is lost or the grace period is over.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	renewed time.Time
}

// fresh reports whether a delivery may start under the lease.
func (h *holding) fresh(lease time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.renewed) < lease-safety && h.ctx.Err() == nil
}

// renew notes a renewal by the time at which it was asked for: the lease may have
// begun no later.
func (h *holding) renew(asked time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = asked
}

// holdings are the queues that this worker holds.
type holdings struct {
	mu sync.Mutex
	// all has one member for each claim and not for each queue: a queue that was
	// lost may be claimed again before its first drainer has noticed.
	all map[*holding]struct{}
}

func newHoldings() *holdings { return &holdings{all: map[*holding]struct{}{}} }

func (hs *holdings) add(ctx context.Context, c lane.Claim, asked time.Time) *holding {
	h := &holding{queue: c.Queue, token: c.Token, renewed: asked}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.all[h] = struct{}{}
	return h
}

func (hs *holdings) remove(h *holding) {
	h.cancel(nil)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.all, h)
}

// of returns the holdings of a shard.
func (hs *holdings) of(shard int) []*holding {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var out []*holding
	for h := range hs.all {
		if h.queue.Shard == shard {
			out = append(out, h)
		}
	}
	return out
}
