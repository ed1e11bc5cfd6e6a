package producer

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// directoryTimeout bounds one look at the directory of workers.
const directoryTimeout = 5 * time.Second

// directory remembers for a short time which environment hooks the workers
// have published.
type directory struct {
	source Directory
	flight singleflight.Group

	mu sync.Mutex
	// hooks are those of all workers; known is false when none is published.
	hooks []lane.PublishedHook
	known bool
	// readAt is on the monotonic clock; zero means never.
	readAt time.Time
}

// published returns the environment hooks of all live workers. known is false
// when no worker is published or the store does not answer: then any event may
// match.
func (d *directory) published(ctx context.Context) (hooks []lane.PublishedHook, known bool) {
	if hooks, known, fresh := d.remembered(); fresh {
		return hooks, known
	}
	done := d.flight.DoChan("workers", func() (any, error) {
		// Another caller's look may have ended since this one found none.
		if _, _, fresh := d.remembered(); fresh {
			return nil, nil
		}
		// Callers share the look, so that none of them may cancel it.
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), directoryTimeout)
		defer cancel()
		return nil, d.refresh(shared)
	})
	select {
	case result := <-done:
		if result.Err != nil {
			return nil, false
		}
		hooks, known, _ = d.remembered()
		return hooks, known
	case <-ctx.Done():
		return nil, false
	}
}

// remembered returns the last answer and whether it is young enough.
func (d *directory) remembered() (hooks []lane.PublishedHook, known, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh = !d.readAt.IsZero() && time.Since(d.readAt) < directoryAge
	return d.hooks, d.known, fresh
}

// refresh asks the store.
func (d *directory) refresh(ctx context.Context) error {
	workers, err := d.source.Workers(ctx)
	if err != nil {
		return err
	}
	var hooks []lane.PublishedHook
	for _, worker := range workers {
		hooks = append(hooks, worker.Hooks...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hooks, d.known, d.readAt = hooks, len(workers) > 0, time.Now()
	return nil
}
