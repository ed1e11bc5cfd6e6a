// Package inbox wakes the many calls of a process that wait for what happens in
// Redis, over one blocking connection per shard. What it hears is a hint: a waiter
// reads the stored truth itself, and does so now and then without a hint, because a
// hint can be lost.
package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

// hearPauseMin and hearPauseMax bound the pause after a failed Hear.
const (
	hearPauseMin = 50 * time.Millisecond
	hearPauseMax = 2 * time.Second
)

// Source is a store that tells inboxes by name what has moved.
type Source[K comparable] interface {
	// Hear blocks until inbox has heard of something in a shard, for some seconds at
	// most, and names it.
	Hear(ctx context.Context, shard int, inbox string) ([]K, error)
	// Shards is the number of shards to listen on, at least 1.
	Shards() int
}

// Config is what an Inbox needs. All of it is required.
type Config[K comparable] struct {
	Source Source[K]
	// Logger receives Lost and Restored, which mark the begin and the end of an outage
	// for those who wait.
	Logger         logrus.FieldLogger
	Lost, Restored string
}

// Inbox is the one ear of an object: one goroutine per shard, started with the
// first waiter, hears what has moved and wakes whoever waits for it. New makes one;
// the zero value is not usable.
type Inbox[K comparable] struct {
	config Config[K]
	name   string

	ctx    context.Context
	cancel context.CancelFunc
	ears   sync.WaitGroup

	mu      sync.Mutex
	open    bool
	waiters map[K]map[*Waiter[K]]struct{}
}

// Waiter is one waiting call.
type Waiter[K comparable] struct {
	key K
	// woken holds one pending hint: the ears send without blocking, the waiting call
	// receives.
	woken chan struct{}
}

// New prepares an Inbox under a name of its own; nothing runs yet.
func New[K comparable](config Config[K]) *Inbox[K] {
	ctx, cancel := context.WithCancel(context.Background())
	return &Inbox[K]{
		config: config, name: tasks.NewID(), ctx: ctx, cancel: cancel,
		waiters: map[K]map[*Waiter[K]]struct{}{},
	}
}

// Name is what the store must know to tell this inbox.
func (b *Inbox[K]) Name() string { return b.name }

// Done is closed by Close.
func (b *Inbox[K]) Done() <-chan struct{} { return b.ctx.Done() }

// Join adds a waiter and makes sure that the ears are open. It must come before the
// store learns of the waiter, or a hint could pass unheard. Leave must follow.
func (b *Inbox[K]) Join(key K) *Waiter[K] {
	w := &Waiter[K]{key: key, woken: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiters[key] == nil {
		b.waiters[key] = map[*Waiter[K]]struct{}{}
	}
	b.waiters[key][w] = struct{}{}
	// Under the lock, so that Close cannot wait for ears that are still to come.
	if !b.open && b.ctx.Err() == nil {
		b.open = true
		for shard := range b.config.Source.Shards() {
			b.ears.Go(func() { b.listen(shard) })
		}
	}
	return w
}

// Leave removes a waiter.
func (b *Inbox[K]) Leave(w *Waiter[K]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters[w.key], w)
	if len(b.waiters[w.key]) == 0 {
		delete(b.waiters, w.key)
	}
}

// Close ends the ears and waits for them. It is idempotent.
func (b *Inbox[K]) Close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.ears.Wait()
}

// listen hears one shard until the inbox is closed.
func (b *Inbox[K]) listen(shard int) {
	pause := hearPauseMin
	failing := false
	for b.ctx.Err() == nil {
		keys, err := b.config.Source.Hear(b.ctx, shard, b.name)
		switch {
		case b.ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.config.Logger.WithField(tasks.LogErr, err).Warn(b.config.Lost)
			}
			failing = true
			wait.Pause(b.ctx.Done(), wait.Jitter(pause))
			pause = min(2*pause, hearPauseMax)
			continue
		case failing:
			b.config.Logger.Info(b.config.Restored)
			// What was told while the ear was deaf is gone.
			b.wakeAll()
		}
		failing, pause = false, hearPauseMin
		b.wake(keys)
	}
}

// wake hints at those who wait for one of the keys.
func (b *Inbox[K]) wake(keys []K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		for w := range b.waiters[key] {
			w.Hint()
		}
	}
}

// wakeAll hints at everybody.
func (b *Inbox[K]) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, waiting := range b.waiters {
		for w := range waiting {
			w.Hint()
		}
	}
}

// Woken receives hints to look again.
func (w *Waiter[K]) Woken() <-chan struct{} { return w.woken }

// Hint leaves a hint, unless one is there that was not received yet.
func (w *Waiter[K]) Hint() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}
