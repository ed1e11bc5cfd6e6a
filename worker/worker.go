package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// ErrStopped is the cause with which deliveries are cut off when the grace
// period of a stop is over. No attempt is charged for them.
var ErrStopped = errors.New("worker stopped")

// Worker drains lanes until it is stopped. New makes one; the zero value is not
// usable.
type Worker struct {
	cfg     Config
	log     *logrus.Entry
	metrics *metrics
	held    *holdings
	// slots holds one token per queue that may be drained at once: listeners take
	// them, drainers give them back.
	slots chan struct{}
	// stopping is closed by Stop: nothing new is started after it.
	stopping chan struct{}
	stopOnce sync.Once
	// work ends the deliveries in flight when the grace period is over.
	work    context.Context
	endWork context.CancelCauseFunc
	// actors are the listeners, the heartbeat, the sweepers and the publisher.
	actors     sync.WaitGroup
	background *background
	health     health
	// kicks wake the sweeper of a shard when something new is due; drainers send.
	kicks []chan struct{}
	// born is when the namespace's data began, as first seen; 0 before. Start writes
	// it, then the publisher.
	born int64
}

// kick lets the sweeper of a shard look again: a retry may be due before its
// next round.
func (w *Worker) kick(shard int) {
	select {
	case w.kicks[shard] <- struct{}{}:
	default:
	}
}

// health is what readiness reports.
type health struct {
	failing atomic.Pointer[string]
}

func (h *health) set(reason string) { h.failing.Store(&reason) }
func (h *health) clear()            { h.failing.Store(nil) }

// New checks a configuration and makes a Worker that is not yet running.
func New(cfg Config) (*Worker, error) {
	if cfg.Store == nil || cfg.Deliverer == nil || cfg.Logger == nil {
		return nil, errors.New("worker: Store, Deliverer and Logger are required")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, held: newHoldings(), slots: make(chan struct{}, cfg.Concurrency),
		stopping: make(chan struct{}), log: cfg.Logger.WithField(tasks.LogWorkerID, cfg.ID),
		metrics: newMetrics(cfg.Registerer),
	}
	for range cfg.Store.Shards() {
		w.kicks = append(w.kicks, make(chan struct{}, 1))
	}
	for range cfg.Concurrency {
		w.slots <- struct{}{}
	}
	w.work, w.endWork = context.WithCancelCause(context.Background())
	if cfg.Asynq != nil {
		w.background = newBackground(cfg, w.log)
	}
	return w, nil
}

// ID returns the worker's name.
func (w *Worker) ID() string { return w.cfg.ID }

// Start checks the environment hooks, publishes the worker and starts its
// actors. An error means that nothing runs.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.publish(ctx); err != nil {
		return fmt.Errorf("publish worker: %w", err)
	}
	if err := w.noticeLoss(ctx); err != nil {
		return err
	}
	if w.background != nil {
		if err := w.background.start(); err != nil {
			return err
		}
	}
	for shard := range w.cfg.Store.Shards() {
		w.run(func() { w.listen(shard) })
		w.run(func() { w.sweep(shard) })
	}
	w.run(w.beat)
	w.run(w.republish)
	w.log.WithField(tasks.LogCount, w.cfg.Concurrency).Info("worker.started")
	return nil
}

func (w *Worker) run(actor func()) {
	w.actors.Add(1)
	go func() {
		defer w.actors.Done()
		actor()
	}()
}

// Stop takes no new work, lets deliveries in flight finish within the grace
// period or ctx, hands the rest back without charging an attempt, and waits
// until nothing of the worker runs any more. It may be called more than once.
func (w *Worker) Stop(ctx context.Context) error {
	first := false
	w.stopOnce.Do(func() { first = true; close(w.stopping) })
	if !first {
		return w.held.wait(ctx)
	}
	graceCtx, cancel := context.WithTimeoutCause(ctx, w.cfg.Grace, ErrStopped)
	defer cancel()
	if w.background != nil {
		w.background.stop()
	}
	drained := make(chan struct{})
	go func() {
		w.actors.Wait()
		close(drained)
	}()
	graceful := w.held.wait(graceCtx)
	w.endWork(ErrStopped)
	// Handing back takes a round trip; it gets its own time, because the caller's
	// may be over.
	settle, cancelSettle := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancelSettle()
	err := w.held.wait(settle)
	select {
	case <-drained:
	case <-settle.Done():
		err = errors.Join(err, settle.Err())
	}
	if e := w.cfg.Store.Withdraw(settle, w.cfg.ID); e != nil {
		w.log.WithField(tasks.LogErr, e).Warn("worker.withdraw_failed")
	}
	w.log.WithField("graceful", graceful == nil).Info("worker.stopped")
	return err
}

// Refresh publishes the environment hooks now, after a change, instead of at the
// next round.
func (w *Worker) Refresh(ctx context.Context) error { return w.publish(ctx) }

// stopped reports whether Stop was called.
func (w *Worker) stopped() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// pause waits, unless the worker is stopped first.
func (w *Worker) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.stopping:
	}
}

// Ready reports why the worker cannot deliver now, or nil.
func (w *Worker) Ready() error {
	if reason := w.health.failing.Load(); reason != nil {
		return errors.New(*reason)
	}
	if w.stopped() {
		return ErrStopped
	}
	return nil
}
