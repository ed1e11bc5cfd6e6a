package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/wait"
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
	// stopping is closed by Stop: nothing new is started after it. ended is closed
	// when Stop has returned.
	stopping, ended chan struct{}
	stopOnce        sync.Once
	// work ends the deliveries in flight when the grace period is over; settling
	// ends what settles them and renews their leases, when Stop can wait no longer.
	work, settling       context.Context
	endWork, endSettling context.CancelCauseFunc
	// actors are the listeners, the heartbeats, the sweepers and the publisher.
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

// health is what readiness reports: what each shard's listener last met.
type health struct {
	failing []atomic.Pointer[string]
}

func (h *health) set(shard int, reason string) { h.failing[shard].Store(&reason) }
func (h *health) clear(shard int)              { h.failing[shard].Store(nil) }

// fault returns what the first failing shard met; "" when none fails.
func (h *health) fault() string {
	for i := range h.failing {
		if reason := h.failing[i].Load(); reason != nil {
			return *reason
		}
	}
	return ""
}

// New checks a configuration and makes a Worker that is not yet running.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	counters, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("worker: register metrics: %w", err)
	}
	w := &Worker{
		cfg: cfg, held: newHoldings(), slots: make(chan struct{}, cfg.Concurrency),
		stopping: make(chan struct{}), ended: make(chan struct{}), log: cfg.Logger.WithField(tasks.LogWorkerID, cfg.ID),
		metrics: counters,
	}
	w.health.failing = make([]atomic.Pointer[string], cfg.Store.Shards())
	for range cfg.Store.Shards() {
		w.kicks = append(w.kicks, make(chan struct{}, 1))
	}
	for range cfg.Concurrency {
		w.slots <- struct{}{}
	}
	w.work, w.endWork = context.WithCancelCause(context.Background())
	w.settling, w.endSettling = context.WithCancelCause(context.Background())
	if cfg.Asynq != nil {
		w.background = newBackground(cfg, w.log)
	}
	return w, nil
}

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
		w.run(func() { w.beat(shard) })
	}
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

// stopPatience bounds each of the two last parts of a stop: handing back what was
// cut off, and the end of what still runs.
const stopPatience = 5 * time.Second

// Stop takes no new work, lets deliveries in flight finish within the grace
// period or ctx, hands the rest back without charging an attempt, and waits
// until nothing of the worker runs any more. An error means that something could
// not be handed back, so that it waits for the end of its lease, or still runs.
// A further call waits for the first one.
func (w *Worker) Stop(ctx context.Context) error {
	first := false
	w.stopOnce.Do(func() { first = true; close(w.stopping) })
	if !first {
		return wait.For(ctx, w.ended)
	}
	defer close(w.ended)
	background := wait.Returned(w.stopBackground)
	grace, cancelGrace := context.WithTimeoutCause(ctx, w.cfg.Grace, ErrStopped)
	defer cancelGrace()
	slots := &homecoming{slots: w.slots, away: w.cfg.Concurrency}
	graceful := errors.Join(slots.wait(grace), wait.For(grace, background))
	w.endWork(ErrStopped)
	// The caller's time may be over by now.
	settle, cancelSettle := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancelSettle()
	err := slots.wait(settle)
	w.endSettling(ErrStopped)
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancelLast()
	err = errors.Join(err, slots.wait(last), wait.For(last, wait.Returned(w.actors.Wait)), wait.For(last, background))
	if e := w.cfg.Store.Withdraw(last, w.cfg.ID); e != nil {
		w.log.WithField(tasks.LogErr, e).Warn("worker.withdraw_failed")
	}
	w.log.WithField(tasks.LogGraceful, graceful == nil).Info("worker.stopped")
	return err
}

func (w *Worker) stopBackground() {
	if w.background != nil {
		w.background.stop()
	}
}

// homecoming counts the slots that came back after Stop. When all have, no claim
// is under way and nothing is held.
type homecoming struct {
	slots <-chan struct{}
	away  int
}

func (h *homecoming) wait(ctx context.Context) error {
	for h.away > 0 {
		if err := wait.For(ctx, h.slots); err != nil {
			return err
		}
		h.away--
	}
	return nil
}

// stopped reports whether Stop was called.
func (w *Worker) stopped() bool { return wait.Closed(w.stopping) }

// pause waits, unless the worker is stopped first.
func (w *Worker) pause(d time.Duration) { wait.Pause(w.stopping, d) }

// Ready reports why the worker cannot deliver now, or nil.
func (w *Worker) Ready() error {
	if reason := w.health.fault(); reason != "" {
		return errors.New(reason)
	}
	if w.stopped() {
		return ErrStopped
	}
	return nil
}
