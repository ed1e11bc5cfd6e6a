package control

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// hearPauseMin and hearPauseMax bound the pause after a failed Hear.
	hearPauseMin = 20 * time.Millisecond
	hearPauseMax = 500 * time.Millisecond
	// rouseTimeout bounds the attempt to end a Hear early.
	rouseTimeout = time.Second
)

// inbox is the one ear of a process: one goroutine per shard, started with the
// first waiter, hears verdicts and hands them to whoever waits. A verdict that is
// not heard is not lost: the register has it.
type inbox struct {
	name     string
	exchange Inboxes
	log      logrus.FieldLogger

	closing chan struct{}
	ears    sync.WaitGroup

	mu      sync.Mutex
	open    bool
	closed  bool
	waiting map[Name][]*waiter
}

// waiter is one waiting call.
type waiter struct {
	name Name
	// digest is that of the question as it was asked here; "" hears of any.
	digest string
	// heard holds one verdict, or nil as a hint to look again. The ears send without
	// blocking, the waiting call receives: when a hint is there already, it finds the
	// verdict by looking.
	heard chan *tasks.Verdict
}

func newInbox(exchange Inboxes, log logrus.FieldLogger) *inbox {
	return &inbox{
		name: tasks.NewID(), exchange: exchange, log: log,
		closing: make(chan struct{}), waiting: map[Name][]*waiter{},
	}
}

// join adds a waiter and makes sure that the ears are open. It must come before
// the exchange learns of the waiter, or a verdict could pass unheard.
func (b *inbox) join(n Name, digest string) *waiter {
	w := &waiter{name: n, digest: digest, heard: make(chan *tasks.Verdict, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[n] = append(b.waiting[n], w)
	if !b.open && !b.closed {
		b.open = true
		for shard := range b.exchange.Shards() {
			b.ears.Go(func() { b.listen(shard) })
		}
	}
	return w
}

func (b *inbox) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting[w.name]
	if len(all) == 1 {
		delete(b.waiting, w.name)
		return
	}
	rest := make([]*waiter, 0, len(all)-1)
	for _, other := range all {
		if other != w {
			rest = append(rest, other)
		}
	}
	b.waiting[w.name] = rest
}

// close ends the ears and waits for them. It is idempotent.
func (b *inbox) close() {
	b.mu.Lock()
	first, open := !b.closed, b.open
	b.closed = true
	b.mu.Unlock()
	if first {
		close(b.closing)
	}
	if first && open {
		// A blocking pop is not cancelled; it is made to return. Without an answer it
		// returns by itself in a moment.
		ctx, cancel := context.WithTimeout(context.Background(), rouseTimeout)
		for shard := range b.exchange.Shards() {
			_ = b.exchange.Rouse(ctx, shard, b.name)
		}
		cancel()
	}
	b.ears.Wait()
}

func (b *inbox) isClosing() bool { return wait.Closed(b.closing) }

// listen hears one shard until the inbox is closed.
func (b *inbox) listen(shard int) {
	log := logging.NewThrottle(b.log.WithField(tasks.LogShard, shard))
	pause := hearPauseMin
	for !b.isClosing() {
		notices, err := b.hear(shard, log.Failing())
		if err != nil {
			if b.isClosing() {
				return
			}
			log.Warn("control.inbox_lost", err)
			wait.Pause(b.closing, wait.Jitter(pause))
			pause = min(2*pause, hearPauseMax)
			continue
		}
		if log.Failing() {
			log.Recovered("control.inbox_heard")
			// What was told while the ear was deaf may be gone.
			b.hint(shard)
		}
		pause = hearPauseMin
		b.tell(notices)
		if len(notices) > 0 {
			// Whoever heard its verdict gets to run first.
			runtime.Gosched()
		}
	}
}

// hear returns at once after a failure, if it goes well by now.
func (b *inbox) hear(shard int, failing bool) ([]Notice, error) {
	if failing {
		ctx, cancel := context.WithTimeout(context.Background(), rouseTimeout)
		defer cancel()
		if err := b.exchange.Rouse(ctx, shard, b.name); err != nil {
			return nil, err
		}
	}
	return b.exchange.Hear(context.Background(), shard, b.name)
}

// tell hands verdicts to those who wait. One that nobody waits for came late, or
// twice, and is dropped.
func (b *inbox) tell(notices []Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range notices {
		for _, w := range b.waiting[notices[i].Name] {
			if w.digest == "" || w.digest == notices[i].Digest {
				w.send(&notices[i].Verdict)
			}
		}
	}
}

// hint makes everybody who waits on a shard look again.
func (b *inbox) hint(shard int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, all := range b.waiting {
		if name.Shard != shard {
			continue
		}
		for _, w := range all {
			w.send(nil)
		}
	}
}

func (w *waiter) send(v *tasks.Verdict) {
	select {
	case w.heard <- v:
	default:
	}
}
