package toolcall

import (
	"context"
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks"
)

// Run takes a call through all its steps: before controls, observation, mocks,
// execution, after controls, archiving, publication, notification
// (docs/behaviour.md §14). It returns as soon as the call is decided;
// notifications go out behind it.
//
// An error means that the call could not be decided or completed: an invalid call
// or invalid hooks, an environment that cannot be read, a failing Archive or
// Publish. The outcome then has no status and no result. A tool that threw is not
// an error of Run, but StatusFailed.
func (r *Runner) Run(ctx context.Context, call Call, execute Execute, options Options) (Outcome, error) {
	run := &run{runner: r, call: call, execute: execute, options: options}
	err := run.all(ctx)
	status := string(run.out.Status)
	if err != nil {
		run.out.Status, run.out.Result, status = "", tasks.ToolResult{}, statusError
	}
	r.metrics.calls.WithLabelValues(status).Inc()
	return run.out, err
}

// run is one call on its way.
type run struct {
	runner  *Runner
	call    Call
	execute Execute
	options Options
	out     Outcome
}

func (r *run) all(ctx context.Context) error {
	if r.execute == nil {
		return errors.New("run tool call: execute is nil")
	}
	verdict, err := r.runner.Before(ctx, r.call)
	if err != nil {
		return err
	}
	r.out.Before = &verdict
	switch {
	case verdict.Status == tasks.VerdictBlocked:
		return r.finish(ctx, StatusBlocked, tasks.DeniedCall(verdict.Reason))
	case !verdict.Allowed():
		return r.cancelled()
	}
	r.runner.Observe(ctx, r.call)
	result, err := r.produce(ctx)
	var thrown *thrownError
	switch {
	case gone(ctx):
		return r.cancelled()
	case errors.As(err, &thrown):
		return r.failed(ctx, thrown.err)
	case err != nil:
		return err
	case isDeferred(result):
		r.out.Status, r.out.Result = StatusDeferred, result
		return nil
	}
	return r.complete(ctx, result)
}

// thrownError keeps what a tool threw apart from what keeps it from running.
type thrownError struct{ err error }

func (e *thrownError) Error() string { return "execute tool: " + e.err.Error() }
func (e *thrownError) Unwrap() error { return e.err }

// produce makes the result: a mock, or the tool's own.
func (r *run) produce(ctx context.Context) (tasks.ToolResult, error) {
	mock, err := r.runner.Mock(ctx, r.call)
	if err != nil {
		return tasks.ToolResult{}, err
	}
	if mock != nil {
		r.out.Mocked = true
		return mock.Result, nil
	}
	result, attempts, err := r.runner.Execute(ctx, r.execute, r.options.Retry)
	r.out.Attempts = attempts
	if err != nil {
		return tasks.ToolResult{}, &thrownError{err}
	}
	return result, nil
}

// complete has a complete result judged and used.
func (r *run) complete(ctx context.Context, result tasks.ToolResult) error {
	verdict, err := r.runner.After(ctx, r.call, Produced{Result: result, Mocked: r.out.Mocked})
	if err != nil {
		return err
	}
	r.out.After = &verdict
	switch {
	case verdict.Status == tasks.VerdictBlocked:
		denial := r.options.Denial
		denial.Reason = verdict.Reason
		return r.finish(ctx, StatusBlocked, denial.Replace(result))
	case !verdict.Allowed():
		return r.cancelled()
	}
	if r.options.Archive != nil {
		if result, err = r.options.Archive(ctx, result); err != nil {
			return fmt.Errorf("archive result: %w", err)
		}
		if gone(ctx) {
			return r.cancelled()
		}
	}
	return r.finish(ctx, StatusExecuted, result)
}

// finish publishes the final result and notifies of it.
func (r *run) finish(ctx context.Context, status Status, result tasks.ToolResult) error {
	r.out.Status, r.out.Result = status, result
	if r.options.Publish != nil {
		if err := r.options.Publish(ctx, r.out); err != nil {
			return fmt.Errorf("publish result: %w", err)
		}
	}
	r.runner.Notify(ctx, r.call, Produced{Result: result, Mocked: r.out.Mocked})
	return nil
}

// cancelled ends a call whose caller has gone: nothing is published.
func (r *run) cancelled() error {
	r.out.Status = StatusCancelled
	return nil
}

// failed ends a call whose tool threw: no control sees that.
func (r *run) failed(ctx context.Context, err error) error {
	r.out.Status, r.out.Err = StatusFailed, err
	r.out.Result = tasks.ToolResult{Error: err.Error()}
	r.runner.NotifyError(ctx, r.call, err)
	return nil
}
