package toolcall

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// Call is one tool call as all its steps see it. Only Context is required.
type Call struct {
	// Context is what the events say about the call; BuildContext makes it.
	Context tasks.ToolContext
	// Chain lists the operations whose caller hooks are asked, in order, such as the
	// original operation of a continuation and then the new one. nil means the call's
	// own operation with the hooks that are known of it, Persisted included.
	Chain []control.OperationHooks
	// Persisted is the operation's stored hooks, a JSON array; no bytes mean that none
	// were passed. One bad entry fails the call before anything is asked or sent.
	Persisted json.RawMessage
	// Timeout bounds all controls of one phase together; 0 means the default of the
	// control client.
	Timeout time.Duration
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// Produced is a complete result before anything was done with it.
type Produced struct {
	// Result is what the tool answered, or the mock.
	Result tasks.ToolResult
	// Mocked says that a handler's result stood in for the tool's.
	Mocked bool
}

// Execute executes the tool once. attempt counts from 1. An error means that the
// tool threw instead of answering; a tool that answers that it failed returns a
// result without success. It must return soon after ctx ends.
type Execute func(ctx context.Context, attempt int) (tasks.ToolResult, error)

// Retry says how often a tool is tried within one call. Controls, observations
// and mocks stand outside: they see one call.
type Retry struct {
	// MaxAttempts is the number of attempts in all; 0 means 1.
	MaxAttempts int
	// Again reports whether another attempt is worth while after one that did not
	// succeed; nil means always. Success, a deferred result, a panic and the end of
	// the context end the trying without asking.
	Again func(attempt Attempt) bool
	// Delay is the pause before the next attempt; nil means none.
	Delay func(attempt Attempt) time.Duration
}

// Attempt is one execution that did not succeed.
type Attempt struct {
	// Number counts from 1.
	Number int
	// Result is what the tool answered; the zero value when it threw.
	Result tasks.ToolResult
	// Err is why it threw; nil when it answered.
	Err error
}

// Options are what else a runtime may say about a call. The zero value executes
// the tool once and has nothing archived.
type Options struct {
	// Retry is how often the tool is tried.
	Retry Retry
	// Archive stores a large result elsewhere and returns what is left of it. It sees
	// allowed results only. nil means that results are used as they are.
	Archive func(ctx context.Context, result tasks.ToolResult) (tasks.ToolResult, error)
	// Publish writes the message of the call, after archiving and before the
	// notification: the result that is final, also that of a denied call. It is not
	// called for a call that is cancelled, deferred or failed. nil means that the
	// runtime does so after Run.
	Publish func(ctx context.Context, outcome Outcome) error
	// Denial says what survives of a result that an after control denied beside its
	// times and its stop. Its reason is the control's, whatever stands here.
	Denial tasks.Denial
}

// Status says what became of a call. The zero value is no status and permits
// nothing.
type Status string

// The statuses.
const (
	// StatusExecuted: the result, the tool's own or a mock, may be used.
	StatusExecuted Status = "executed"
	// StatusBlocked: a control denied the call (Outcome.After is nil) or its result.
	// Outcome.Result stands in for it.
	StatusBlocked Status = "blocked"
	// StatusCancelled: the caller gave up. Nothing was published and nothing may be.
	StatusCancelled Status = "cancelled"
	// StatusDeferred: the tool answered with a placeholder. No control has seen a
	// result yet; open a deferred completion for it.
	StatusDeferred Status = "deferred"
	// StatusFailed: the tool threw; Outcome.Err says why.
	StatusFailed Status = "failed"
)

// Statuses returns every status, for metrics that pre-create their labels.
func Statuses() []Status {
	return []Status{StatusExecuted, StatusBlocked, StatusCancelled, StatusDeferred, StatusFailed}
}

// Outcome is what a call came to.
type Outcome struct {
	// Status says what may be done with Result.
	Status Status
	// Result is what the model may see: the archived result, or what stands in for a
	// denied one. It is empty and without success for a cancelled call, and has only
	// the error for a failed one.
	Result tasks.ToolResult
	// Attempts counts the executions; 0 for a call that was blocked, cancelled before
	// its execution, or mocked.
	Attempts int
	// Mocked says that a handler's result stood in for the tool's.
	Mocked bool
	// Before and After are the verdicts; nil for a phase that was not asked.
	Before, After *tasks.Verdict
	// Err is why the tool threw; nil otherwise.
	Err error
}
