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
	mu  sync.Mutex
	all map[lane.Queue]*holding
	// none is closed whenever nothing is held; wait uses it.
	none chan struct{}
}

func newHoldings() *holdings {
	none := make(chan struct{})
	close(none)
	return &holdings{all: map[lane.Queue]*holding{}, none: none}
}

func (hs *holdings) add(ctx context.Context, c lane.Claim, asked time.Time) *holding {
	h := &holding{queue: c.Queue, token: c.Token, renewed: asked}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.all) == 0 {
		hs.none = make(chan struct{})
	}
	hs.all[c.Queue] = h
	return h
}

func (hs *holdings) remove(h *holding) {
	h.cancel(nil)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.all[h.queue] == h {
		delete(hs.all, h.queue)
	}
	if len(hs.all) == 0 {
		select {
		case <-hs.none:
		default:
			close(hs.none)
		}
	}
}

// byShard returns the holdings of each shard.
func (hs *holdings) byShard() map[int][]*holding {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	out := map[int][]*holding{}
	for _, h := range hs.all {
		out[h.queue.Shard] = append(out[h.queue.Shard], h)
	}
	return out
}

// wait returns when nothing is held or ctx ends.
func (hs *holdings) wait(ctx context.Context) error {
	hs.mu.Lock()
	none := hs.none
	hs.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
