package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// dispatchLocal runs the hooks in force one after the other in this process.
// A registration made here, even an empty one, comes before a persisted list
// (docs/behaviour.md §4).
func (d *Dispatcher) dispatchLocal(ctx context.Context, operationID string, request EventRequest) error {
	if request.Delay != 0 {
		return fmt.Errorf("%w: local mode cannot delay an event", ErrInvalidRequest)
	}
	persisted, err := parsePersisted(request.Persisted)
	if err != nil {
		return err
	}
	environment, err := d.environment()
	if err != nil {
		return err
	}
	caller := persisted
	if registered, ok := d.registry.of(operationID); ok {
		caller = registered.all
	}
	run := localRun{dispatcher: d, operationID: operationID, request: request}
	if run.request.ID == "" {
		run.request.ID = tasks.NewID()
	}
	return run.all(ctx, evaluation(request.Event, caller, environment))
}

// step is one hook of a local dispatch, in order of evaluation.
type step struct {
	tasks.HookInForce
	// err says that the matcher gave no answer.
	err error
}

// evaluation puts the hooks in force, and those whose matcher gave no answer,
// into one order of evaluation.
func evaluation(event *tasks.Event, caller, environment []tasks.Hook) []step {
	hooks, failures := tasks.InForce(event, caller, environment)
	byHook := make(map[*tasks.Hook]step, len(hooks)+len(failures))
	for _, hook := range hooks {
		byHook[hook.Hook] = step{HookInForce: hook}
	}
	for _, failure := range failures {
		byHook[failure.Hook] = step{HookInForce: failure.HookInForce, err: failure.Err}
	}
	steps := make([]step, 0, len(byHook))
	for _, list := range [][]tasks.Hook{caller, environment} {
		for i := range list {
			if s, ok := byHook[&list[i]]; ok {
				steps = append(steps, s)
			}
		}
	}
	return steps
}

// localRun is one dispatch in local mode.
type localRun struct {
	dispatcher  *Dispatcher
	operationID string
	request     EventRequest
	critical    []HookFailure
}

// all runs each step, whatever became of the ones before, unless the caller
// gives up: then what was cut off is an error too.
func (r *localRun) all(ctx context.Context, steps []step) error {
	for i, s := range steps {
		if ctx.Err() != nil {
			return r.cutShort(ctx, i, len(steps))
		}
		if cancelled := r.one(ctx, s); cancelled {
			return r.cutShort(ctx, i, len(steps))
		}
	}
	return r.raise()
}

// one runs one hook: its handler if it has one, else its webhook.
func (r *localRun) one(ctx context.Context, s step) (cancelled bool) {
	switch {
	case s.Hook.Handler != nil && r.request.SkipHandlers:
	case s.err != nil:
		failure := HookFailure{Class: tasks.ClassConfiguration, Message: "matcher gave no answer"}
		r.failed(s, failure, s.err)
	case s.Hook.Handler != nil:
		event := copyEvent(r.request.Event)
		if err := call(ctx, s.Hook.Handler, event); err != nil {
			r.logHandler(s, err)
		}
	default:
		return r.deliver(ctx, s)
	}
	return false
}

// deliver makes the one attempt of a webhook.
func (r *localRun) deliver(ctx context.Context, s step) (cancelled bool) {
	deliverer := r.dispatcher.config.Deliverer
	if deliverer == nil {
		r.failed(s, HookFailure{Class: tasks.ClassConfiguration, Message: "no deliverer is configured"}, nil)
		return false
	}
	result := deliverer.Deliver(ctx, webhook.Delivery{
		Hook: s.Hook, Type: r.request.Event.Type, Event: r.request.Event.Raw,
		ID:     tasks.DeliveryID(r.dispatcher.config.Namespace, r.operationID, r.request.ID, s.Key),
		TaskID: r.request.ID, OperationID: r.operationID, Attempt: 1, Trace: r.request.Trace,
	})
	if result.FellBack {
		r.logger(s).WithField(tasks.LogMessage, result.Publish).Warn(logPublishFailed)
	}
	switch {
	case result.Delivered:
	case result.Cancelled:
		return true
	default:
		r.failed(s, HookFailure{
			Class: result.Class, Status: result.Status, Attempt: 1, Reason: result.Reason, Message: result.Message,
		}, nil)
	}
	return false
}

// failed logs a failure, and remembers it when the hook is a critical webhook.
// A hook with a handler never is (docs/behaviour.md §5).
func (r *localRun) failed(s step, failure HookFailure, err error) {
	failure.HookID, failure.Occurrence = s.Hook.ID, s.Occurrence
	log := r.logger(s).WithField(tasks.LogClass, string(failure.Class))
	if failure.Message != "" {
		log = log.WithField(tasks.LogMessage, failure.Message)
	}
	if failure.Status != 0 {
		log = log.WithField(tasks.LogStatus, failure.Status)
	}
	if err != nil {
		log = log.WithField(tasks.LogErr, err)
	}
	log.Warn(logHookFailed)
	if s.Hook.Handler == nil && s.Hook.Critical() {
		r.critical = append(r.critical, failure)
	}
}

// raise returns the critical error of the run, if any.
func (r *localRun) raise() error {
	return Result{OperationID: r.operationID, TaskID: r.request.ID, critical: r.critical}.Err()
}

// cutShort says that the caller gave up before the hook at done had run to its
// end. Local mode stores nothing, so the rest is not delivered later either.
func (r *localRun) cutShort(ctx context.Context, done, total int) error {
	err := fmt.Errorf("dispatch %s: cut short after %d of %d hooks: %w",
		r.request.Event.Type, done, total, context.Cause(ctx))
	if critical := r.raise(); critical != nil {
		return errors.Join(critical, err)
	}
	return err
}

// call runs a handler; a panic is its error.
func call(ctx context.Context, handler tasks.Handler, event *tasks.Event) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("handler panicked: %v", cause)
		}
	}()
	return handler(ctx, event)
}

// copyEvent gives a handler an event of its own, so that it cannot change what
// later hooks see.
func copyEvent(event *tasks.Event) *tasks.Event {
	copied := *event
	copied.Raw = append(copied.Raw[:0:0], event.Raw...)
	return &copied
}
