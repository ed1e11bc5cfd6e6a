package producer

import (
	"context"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/internal/inbox"
	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

const (
	// recheckMin and recheckMax bound the pauses between a waiter's own looks at
	// the stored status, in case that a notice was lost.
	recheckMin = 2 * time.Second
	recheckMax = 10 * time.Second
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

// waiting is one waiting call.
type waiting struct {
	key awaited
	*inbox.Waiter[lane.Notice]
}

// errAwaitTimeout is the cause of a wait that ended by Config.AwaitTimeout.
var errAwaitTimeout = errors.Join(errors.New("await timeout is over"), context.DeadlineExceeded)

// Result is how an event stands.
type Result struct {
	OperationID string
	TaskID      string
	// Sequence is the position in the operation's lane; 0 while the event is delayed.
	Sequence int64
	// Failures are the hooks that are not delivered; a hook that is not listed is.
	Failures []HookFailure

	critical []HookFailure
}

// Delivered reports whether each hook of the event is delivered.
func (r Result) Delivered() bool { return len(r.Failures) == 0 }

// Err is a *CriticalHookDeliveryError when a hook with fallback none is not
// delivered, else nil.
func (r Result) Err() error {
	if len(r.critical) == 0 {
		return nil
	}
	return &CriticalHookDeliveryError{
		OperationID: r.OperationID, TaskID: r.TaskID,
		HookID: r.critical[0].HookID, Cause: &HookFailureError{HookFailure: r.critical[0]},
		Causes: r.critical,
	}
}

// Await waits until each hook of a stored event is delivered, dead or
// discarded. It fails with lane.ErrNotFound when the store does not know the
// event, *UnsettledError when the wait ends first, *UnavailableError never: a
// wait outlives an outage. ErrNotQueued in local mode, ErrNoOutcome in QStash mode.
func (d *Dispatcher) Await(ctx context.Context, operationID, taskID string) (Result, error) {
	return d.awaitStored(ctx, awaited{operationID, taskID}, lane.WaitFinal)
}

// AwaitFirst waits until each hook of a stored event had its first attempt or
// waits behind a parked delivery. It fails as Await does.
func (d *Dispatcher) AwaitFirst(ctx context.Context, operationID, taskID string) (Result, error) {
	return d.awaitStored(ctx, awaited{operationID, taskID}, lane.WaitFirst)
}

// awaitStored waits for a task that this call did not append.
func (d *Dispatcher) awaitStored(ctx context.Context, key awaited, mode lane.WaitMode) (Result, error) {
	switch {
	case d.relayed != nil:
		return Result{}, ErrNoOutcome
	case d.inbox == nil:
		return Result{}, ErrNotQueued
	case wait.Closed(d.inbox.Done()):
		return Result{}, ErrClosed
	}
	w := d.inbox.Join(key.notice())
	defer d.inbox.Leave(w)
	w.Hint() // look at once
	status, err := d.settle(ctx, waiting{key, w}, mode)
	if err != nil {
		return Result{}, err
	}
	return newResult(key, status, nil), nil
}

// settle waits until the task of w has come to mode. The context's end, the
// Dispatcher's end and an unknown task are its only failures: while the store
// is away it keeps waiting.
func (d *Dispatcher) settle(ctx context.Context, w waiting, mode lane.WaitMode) (lane.Status, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.config.AwaitTimeout, errAwaitTimeout)
		defer cancel()
	}
	defer d.metrics.waiting()()
	pause := recheckMin
	recheck := time.NewTimer(wait.Jitter(pause))
	defer recheck.Stop()
	var trouble error
	for {
		select {
		case <-ctx.Done():
			return lane.Status{}, unsettled(w.key, context.Cause(ctx), trouble)
		case <-d.inbox.Done():
			return lane.Status{}, unsettled(w.key, ErrClosed, trouble)
		case <-w.Woken():
		case <-recheck.C:
			pause = min(2*pause, recheckMax)
			recheck.Reset(wait.Jitter(pause))
		}
		waiter := lane.Waiter{Inbox: d.inbox.Name(), Mode: mode}
		status, err := d.config.Store.Status(ctx, w.key.operationID, w.key.taskID, waiter)
		switch trouble = err; {
		case err != nil:
		case !status.Known:
			return lane.Status{}, unsettled(w.key, lane.ErrNotFound, nil)
		case status.Settled(mode):
			return status, nil
		}
	}
}

// unsettled builds the error of a wait that ended early.
func unsettled(key awaited, cause, trouble error) error {
	if trouble != nil && errors.Is(trouble, lane.ErrUnavailable) {
		cause = errors.Join(cause, trouble)
	}
	return &UnsettledError{OperationID: key.operationID, TaskID: key.taskID, Err: cause}
}

// newResult reads a status; hooks are the event's caller hooks in order of
// evaluation, as far as they are known.
func newResult(key awaited, status lane.Status, hooks []*tasks.Hook) Result {
	result := Result{OperationID: key.operationID, TaskID: key.taskID, Sequence: status.Sequence}
	if len(status.Outcomes) == 0 {
		return result
	}
	for _, outcome := range newHookOrder(hooks).sorted(status.Outcomes) {
		if outcome.Standing == lane.StandingDelivered {
			continue
		}
		failure := newHookFailure(outcome)
		result.Failures = append(result.Failures, failure)
		if outcome.Critical {
			result.critical = append(result.critical, failure)
		}
	}
	return result
}

// newHookFailure reads one outcome.
func newHookFailure(o lane.Outcome) HookFailure {
	failure := HookFailure{
		HookID: o.HookID, Occurrence: o.Occurrence, Standing: o.Standing,
		Class: o.Class, Status: o.Status, Attempt: o.Attempt, Reason: o.Reason, Message: o.Message,
	}
	if o.DueAt > 0 {
		failure.DueAt = time.UnixMilli(o.DueAt)
	}
	return failure
}
