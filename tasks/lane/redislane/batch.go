package redislane

import (
	"runtime"
	"sync"
)

// batch gathers what many callers want to send to one shard: while one exchange
// is under way, the next calls gather and go together in the following one. An
// idle batch sends at once. send must finish every call that it is given.
type batch[T any] struct {
	send func(calls []T)
	// limit bounds one exchange, so that other clients of the shard get a turn.
	limit int

	mu      sync.Mutex
	waiting []T
	sending bool
}

func newBatch[T any](limit int, send func([]T)) *batch[T] {
	return &batch[T]{limit: limit, send: send}
}

func (b *batch[T]) add(c T) {
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	start := !b.sending
	b.sending = true
	b.mu.Unlock()
	if start {
		go b.run()
	}
}

func (b *batch[T]) run() {
	for {
		// Whoever is about to add something gets to run first: under load one exchange
		// then serves many callers, and an idle process loses nothing.
		runtime.Gosched()
		calls := b.next()
		if len(calls) == 0 {
			return
		}
		b.send(calls)
	}
}

// next takes what waits, up to the limit; none ends the sending.
func (b *batch[T]) next() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), b.limit)
	if n == 0 {
		// An idle batch keeps no documents of its last calls alive.
		b.sending, b.waiting = false, nil
		return nil
	}
	calls := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return calls
}
