package toolcall

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// background runs jobs that no call waits for: those of one operation one after
// the other, so that they are handed over in the order in which they came up,
// those of different operations at the same time.
type background struct {
	limit   int
	pending prometheus.Gauge
	// ctx ends when waiting for the jobs has ended.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	count  int
	closed bool
	// lines holds the waiting jobs of each operation that has a goroutine.
	lines map[string][]func(context.Context)
}

func newBackground(limit int, pending prometheus.Gauge) *background {
	ctx, cancel := context.WithCancel(context.Background())
	return &background{
		limit: limit, pending: pending, ctx: ctx, cancel: cancel, lines: map[string][]func(context.Context){},
	}
}

// start puts a job behind the others of its operation, and refuses it when the
// Runner is closed or too much waits. The job must return soon after its context
// ends.
func (b *background) start(operationID string, job func(context.Context)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.count >= b.limit:
		return ErrBacklog
	}
	b.append(operationID, job)
	return nil
}

// append adds a job to a line, and somebody to work it off; b.mu is held.
func (b *background) append(operationID string, job func(context.Context)) {
	b.count++
	b.pending.Inc()
	waiting, running := b.lines[operationID]
	b.lines[operationID] = append(waiting, job)
	if !running {
		b.work.Go(func() { b.drain(operationID) })
	}
}

// beside runs a job that is out of line: nobody behind it waits for it. It may be
// called by jobs only, and is left out when too much runs already.
func (b *background) beside(job func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count >= b.limit || b.ctx.Err() != nil {
		return
	}
	b.count++
	b.pending.Inc()
	b.work.Go(func() {
		defer b.done()
		job(b.ctx)
	})
}

// drain works off the line of an operation, and removes it when it is empty.
func (b *background) drain(operationID string) {
	for {
		b.mu.Lock()
		waiting := b.lines[operationID]
		if len(waiting) == 0 {
			delete(b.lines, operationID)
			b.mu.Unlock()
			return
		}
		job := waiting[0]
		waiting[0] = nil
		b.lines[operationID] = waiting[1:]
		b.mu.Unlock()
		job(b.ctx)
		b.done()
	}
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
	b.pending.Dec()
}

// flush waits for the jobs that stand in the operation's line now.
func (b *background) flush(ctx context.Context, operationID string) error {
	reached := make(chan struct{})
	b.mu.Lock()
	if _, running := b.lines[operationID]; !running {
		b.mu.Unlock()
		return nil
	}
	b.append(operationID, func(context.Context) { close(reached) })
	b.mu.Unlock()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close refuses new jobs and waits for the others; the end of ctx ends them.
func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		b.work.Wait()
		close(idle)
	}()
	defer b.cancel()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	b.cancel()
	<-idle
	return context.Cause(ctx)
}
