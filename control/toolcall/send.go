package toolcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// logNotificationFailed is a notification that did not reach everybody whom it
// should, a critical observation included.
const logNotificationFailed = "toolcall.notification_failed"

// repeatMin and repeatMax bound the pauses between hand-overs while the queue is
// away.
const (
	repeatMin = 100 * time.Millisecond
	repeatMax = 5 * time.Second
)

// sending is one event that the Runner sends.
type sending struct {
	call         Call
	typed        tasks.TypedEvent
	skipHandlers bool
}

// send starts to hand one event over.
func (r *Runner) send(ctx context.Context, s sending) {
	if r.config.Observer == nil {
		return
	}
	failure := Failure{
		OperationID: s.call.Context.OperationID, Type: s.typed.HookType(), ToolCallID: s.call.Context.ToolCallID, ID: tasks.NewID(),
	}
	// The event is built now: the runtime may go on with what the result refers to.
	event, err := tasks.NewEvent(s.typed)
	if err != nil {
		r.failed(failure, fmt.Errorf("build %s event: %w", failure.Type, err))
		return
	}
	notification := tasks.Notification{
		Event: event, ID: failure.ID, Persisted: s.call.Persisted, Trace: s.call.Trace, SkipHandlers: s.skipHandlers,
	}
	values := context.WithoutCancel(ctx)
	err = r.background.start(event.OperationID, func(ctx context.Context) {
		ctx, cancel := r.bounded(ctx, values)
		defer cancel()
		pending, err := r.handOver(ctx, notification)
		switch {
		case err != nil:
			r.failed(failure, err)
		case pending && r.config.OnFailure != nil:
			r.background.beside(func(ctx context.Context) { r.attempted(ctx, values, failure) })
		}
	})
	if err != nil {
		r.failed(failure, err)
	}
}

// bounded gives a job the values of its call, the end of ctx, and a time limit of
// its own.
func (r *Runner) bounded(ctx, values context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeoutCause(values, r.config.BackgroundTimeout, errBackgroundTimeout)
	stop := context.AfterFunc(ctx, cancel)
	return bounded, func() { stop(); cancel() }
}

// handOver repeats a notification while the queue is away: its id keeps it from
// being stored twice.
func (r *Runner) handOver(ctx context.Context, n tasks.Notification) (pending bool, err error) {
	for pause := repeatMin; ; pause = min(2*pause, repeatMax) {
		pending, err = r.config.Observer.Notify(ctx, n)
		if err == nil || !errors.Is(err, lane.ErrUnavailable) {
			return pending, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, errors.Join(context.Cause(ctx), err)
		}
	}
}

// attempted waits for what the workers make of an event, for the one who wants to
// hear of critical failures.
func (r *Runner) attempted(ctx, values context.Context, failure Failure) {
	ctx, cancel := r.bounded(ctx, values)
	defer cancel()
	if err := r.config.Observer.Attempted(ctx, failure.OperationID, failure.ID); err != nil {
		r.failed(failure, err)
	}
}

// failed reports a notification that failed. Neither it nor the error says what
// the event holds.
func (r *Runner) failed(failure Failure, err error) {
	failure.Err = err
	r.metrics.failures.WithLabelValues(string(failure.Type)).Inc()
	r.config.Logger.WithFields(logrus.Fields{
		tasks.LogOperationID: failure.OperationID,
		tasks.LogTaskID:      failure.ID,
		tasks.LogHookType:    string(failure.Type),
		tasks.LogErr:         err,
	}).Warn(logNotificationFailed)
	if r.config.OnFailure != nil {
		r.config.OnFailure(failure)
	}
}
