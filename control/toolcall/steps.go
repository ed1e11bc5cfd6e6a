package toolcall

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// Before asks the controls if the call may go ahead, once. Only an allow is
// permission; a cancelled verdict means that ctx has ended. An error means that
// nobody could be asked, as with invalid hooks: the call must not go ahead
// (docs/behaviour.md §14).
func (r *Runner) Before(ctx context.Context, call Call) (tasks.Verdict, error) {
	return r.ask(ctx, call, tasks.BeforeToolCallEvent{ToolContext: call.Context})
}

// After asks the controls if a complete result may be used, before it is
// archived or shown to anybody. It answers as Before does, and refuses a deferred
// placeholder with ErrDeferred.
func (r *Runner) After(ctx context.Context, call Call, produced Produced) (tasks.Verdict, error) {
	if isDeferred(produced.Result) {
		return tasks.Verdict{}, ErrDeferred
	}
	return r.ask(ctx, call, tasks.AfterToolCallEvent{
		ToolContext: call.Context, Mocked: produced.Mocked, Result: produced.Result,
	})
}

// ask puts one question. Whatever was answered, a caller that has gone gets
// cancelled.
func (r *Runner) ask(ctx context.Context, call Call, typed tasks.TypedEvent) (tasks.Verdict, error) {
	phase := typed.HookType()
	event, err := tasks.NewEvent(typed)
	if err != nil {
		return tasks.Verdict{}, fmt.Errorf("build %s event: %w", phase, err)
	}
	chain, err := r.chain(call)
	if err != nil {
		return tasks.Verdict{}, fmt.Errorf("find %s controls: %w", phase, err)
	}
	verdict, err := r.config.Controls.Evaluate(ctx, control.Request{
		Event: event, Chain: chain, Timeout: call.Timeout, Trace: call.Trace,
	})
	if gone(ctx) {
		verdict.Type, verdict.Status, verdict.Reason = phase, tasks.VerdictCancelled, ""
		verdict.Outcome = tasks.OutcomeCancelled
		return verdict, nil
	}
	if err != nil {
		return tasks.Verdict{}, fmt.Errorf("ask %s controls: %w", phase, err)
	}
	switch verdict.Status {
	case tasks.VerdictAllow, tasks.VerdictBlocked, tasks.VerdictCancelled:
		return verdict, nil
	default:
		return tasks.Verdict{}, fmt.Errorf("ask %s controls: %w", phase, ErrNoVerdict)
	}
}

// chain is the caller's chain, or the call's own operation with the hooks that
// count when its stored list is passed (docs/behaviour.md §4).
func (r *Runner) chain(call Call) ([]control.OperationHooks, error) {
	if call.Chain != nil {
		return call.Chain, nil
	}
	hooks := call.Persisted
	if r.config.Hooks != nil {
		var err error
		if hooks, err = r.config.Hooks.CallerHooks(call.Context.OperationID, call.Persisted); err != nil {
			return nil, err
		}
	}
	if len(hooks) == 0 {
		return nil, nil
	}
	return []control.OperationHooks{{OperationID: call.Context.OperationID, Hooks: hooks}}, nil
}

// Observe starts to tell the observers that the call is about to be executed, and
// returns at once. Local handlers are left out: Mock runs them. It belongs after
// an allow and before Mock, once per call; nothing that becomes of it changes the
// call (docs/behaviour.md §14).
func (r *Runner) Observe(ctx context.Context, call Call) {
	r.send(ctx, sending{call: call, typed: tasks.BeforeToolCallEvent{ToolContext: call.Context}, skipHandlers: true})
}

// Mock asks the local handlers for a result in place of the tool's; nil means
// that the tool is to be executed. An error other than ctx's end means that
// nobody could be asked.
func (r *Runner) Mock(ctx context.Context, call Call) (*tasks.MockResult, error) {
	if gone(ctx) {
		return nil, fmt.Errorf("ask for a mock: %w", context.Cause(ctx))
	}
	if r.config.Mocks == nil {
		return nil, nil
	}
	event, err := tasks.NewEvent(tasks.BeforeToolCallEvent{ToolContext: call.Context})
	if err != nil {
		return nil, fmt.Errorf("build %s event: %w", tasks.BeforeToolCall, err)
	}
	return r.config.Mocks.DispatchBeforeToolCall(ctx, event.OperationID, event)
}

// Execute executes the tool as often as retry says and returns the last answer
// with the number of attempts. An error is why the last attempt threw, a
// *PanicError for a panic, or the cause of ctx's end.
func (r *Runner) Execute(ctx context.Context, execute Execute, retry Retry) (tasks.ToolResult, int, error) {
	for number := 1; ; number++ {
		if gone(ctx) {
			return tasks.ToolResult{}, number - 1, context.Cause(ctx)
		}
		r.metrics.attempts.Inc()
		result, err := attempt(ctx, execute, number)
		if !retry.again(ctx, Attempt{Number: number, Result: result, Err: err}) {
			return result, number, err
		}
	}
}

// attempt runs the tool once; a panic is its error.
func attempt(ctx context.Context, execute Execute, number int) (result tasks.ToolResult, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			result, err = tasks.ToolResult{}, &PanicError{Value: cause, Stack: debug.Stack()}
		}
	}()
	if result, err = execute(ctx, number); err != nil {
		return tasks.ToolResult{}, err
	}
	return result, nil
}

// again decides about another attempt and waits until it is due.
func (p Retry) again(ctx context.Context, last Attempt) bool {
	var panicked *PanicError
	switch {
	case last.Number >= p.MaxAttempts, gone(ctx),
		last.Err == nil && last.Result.Success, isDeferred(last.Result), errors.As(last.Err, &panicked),
		p.Again != nil && !p.Again(last):
		return false
	}
	if p.Delay == nil {
		return true
	}
	timer := time.NewTimer(p.Delay(last))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Notify starts to tell the observers the final result of a call: the archived
// one, or what stands in for a denied one. It returns at once, and what becomes of
// it changes nothing. Nothing is sent once ctx has ended, because a late result
// would follow the end of its operation, nor for a deferred placeholder
// (docs/behaviour.md §14).
func (r *Runner) Notify(ctx context.Context, call Call, final Produced) {
	if gone(ctx) || isDeferred(final.Result) {
		return
	}
	r.send(ctx, sending{call: call, typed: tasks.AfterToolCallEvent{
		ToolContext: call.Context, Mocked: final.Mocked, Result: final.Result,
	}})
}

// NotifyError starts to tell the observers that the tool threw, as Notify does.
func (r *Runner) NotifyError(ctx context.Context, call Call, err error) {
	if gone(ctx) {
		return
	}
	r.send(ctx, sending{call: call, typed: tasks.ToolCallErrorEvent{ToolContext: call.Context, Error: err.Error()}})
}

// gone reports whether the caller has ended the call.
func gone(ctx context.Context) bool { return ctx.Err() != nil }

func isDeferred(result tasks.ToolResult) bool { return result.Deferred != nil && *result.Deferred }
