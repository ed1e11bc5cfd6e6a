package producer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

const (
	// hearPauseMin and hearPauseMax bound the pause after a failed Hear.
	hearPauseMin = 50 * time.Millisecond
	hearPauseMax = 2 * time.Second
)

// awaited names a task that somebody waits for.
type awaited struct {
	operationID string
	taskID      string
}

// notice is what the ears hear of the task.
func (a awaited) notice() lane.Notice {
	return lane.Notice{OperationHash: tasks.OperationHash(a.operationID), TaskID: a.taskID}
}

// inbox is the one ear of a process: one goroutine per shard, started with the
// first waiter, hears which tasks have moved and wakes whoever waits for them.
// A notice is only a hint; a waiter reads the stored status itself.
type inbox struct {
	name   string
	store  Inboxes
	logger logrus.FieldLogger

	ctx    context.Context
	cancel context.CancelFunc
	start  sync.Once
	ears   sync.WaitGroup

	mu      sync.Mutex
	waiters map[lane.Notice]map[*waiter]struct{}
}

// waiter is one waiting call.
type waiter struct {
	key    awaited
	notice lane.Notice
	// woken holds one pending hint: the ears send without blocking, the waiting
	// call receives.
	woken chan struct{}
}

// newInbox prepares an inbox under a name of its own; nothing runs yet.
func newInbox(store Inboxes, logger logrus.FieldLogger) *inbox {
	ctx, cancel := context.WithCancel(context.Background())
	return &inbox{
		name: tasks.NewID(), store: store, logger: logger,
		ctx: ctx, cancel: cancel,
		waiters: make(map[lane.Notice]map[*waiter]struct{}),
	}
}

// join adds a waiter for key and makes sure that the ears are open. It must
// come before the store learns of the waiter, or a notice could pass unheard.
func (b *inbox) join(key awaited) *waiter {
	w := &waiter{key: key, notice: key.notice(), woken: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiters[w.notice] == nil {
		b.waiters[w.notice] = make(map[*waiter]struct{})
	}
	b.waiters[w.notice][w] = struct{}{}
	// Under the lock, so that close cannot wait for ears that are still to come.
	b.start.Do(b.open)
	return w
}

// leave removes a waiter.
func (b *inbox) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters[w.notice], w)
	if len(b.waiters[w.notice]) == 0 {
		delete(b.waiters, w.notice)
	}
}

// open starts one ear per shard.
func (b *inbox) open() {
	if b.ctx.Err() != nil {
		return
	}
	for shard := range b.store.Shards() {
		b.ears.Go(func() { b.listen(shard) })
	}
}

// close ends the ears and waits for them. It is idempotent.
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
		notices, err := b.store.Hear(b.ctx, shard, b.name)
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
		b.wake(notices)
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

// wake hints at those who wait for one of the tasks.
func (b *inbox) wake(notices []lane.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, notice := range notices {
		for w := range b.waiters[notice] {
			w.hint()
		}
	}
}

// wakeAll hints at everybody.
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
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}
