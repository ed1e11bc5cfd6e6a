package deferred

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// hearPauseMin and hearPauseMax bound the pause after a failed Hear.
const (
	hearPauseMin = 50 * time.Millisecond
	hearPauseMax = 2 * time.Second
)

// inbox is the one ear of a Service: one goroutine per shard, started with the
// first waiter, hears which rows are final and wakes whoever waits for them. What
// it hears is a hint; the waiter reads the row itself.
type inbox struct {
	name   string
	store  Inboxes
	logger logrus.FieldLogger

	ctx    context.Context
	cancel context.CancelFunc
	ears   sync.WaitGroup

	mu      sync.Mutex
	opened  bool
	waiters map[string]map[*waiter]struct{}
}

// waiter is one waiting call.
type waiter struct {
	id string
	// woken holds one pending hint: the ears send without blocking, the call receives.
	woken chan struct{}
}

func newInbox(store Inboxes, logger logrus.FieldLogger) *inbox {
	ctx, cancel := context.WithCancel(context.Background())
	return &inbox{
		name: tasks.NewID(), store: store, logger: logger,
		ctx: ctx, cancel: cancel, waiters: map[string]map[*waiter]struct{}{},
	}
}

// join adds a waiter and makes sure that the ears are open, before the store can
// have told anything.
func (b *inbox) join(id string) (*waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if !b.opened {
		b.opened = true
		for shard := range b.store.Shards() {
			b.ears.Go(func() { b.listen(shard) })
		}
	}
	w := &waiter{id: id, woken: make(chan struct{}, 1)}
	if b.waiters[id] == nil {
		b.waiters[id] = map[*waiter]struct{}{}
	}
	b.waiters[id][w] = struct{}{}
	return w, nil
}

func (b *inbox) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters[w.id], w)
	if len(b.waiters[w.id]) == 0 {
		delete(b.waiters, w.id)
	}
}

// close ends the ears and waits for them.
func (b *inbox) close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.ears.Wait()
}

// listen hears one shard until the inbox is closed.
func (b *inbox) listen(shard int) {
	pause := hearPauseMin
	failing := false
	for b.ctx.Err() == nil {
		ids, err := b.store.Hear(b.ctx, shard, b.name)
		switch {
		case b.ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.logger.WithField(tasks.LogErr, err).Warn(logInboxLost)
			}
			failing = true
			b.rest(pause)
			pause = min(2*pause, hearPauseMax)
			continue
		case failing:
			b.logger.Info(logInboxHeard)
			// What was told while the ear was deaf is gone.
			b.wakeAll()
		}
		failing, pause = false, hearPauseMin
		b.wake(ids)
	}
}

// rest pauses for about d, or until the inbox is closed.
func (b *inbox) rest(d time.Duration) {
	timer := time.NewTimer(jitter(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
	}
}

func (b *inbox) wake(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		for w := range b.waiters[id] {
			w.hint()
		}
	}
}

func (b *inbox) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, waiting := range b.waiters {
		for w := range waiting {
			w.hint()
		}
	}
}

// hint leaves at most one hint.
func (w *waiter) hint() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// jitter spreads d over three quarters to five quarters of itself.
func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }
