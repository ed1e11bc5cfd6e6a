package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// ErrPending says that a question has no verdict yet.
var ErrPending = errors.New("verdict is pending")

// Question is what a runtime asks about one tool call (docs/behaviour.md §13).
type Question struct {
	// ID is never empty: the caller's, or one drawn for it.
	ID string
	// Event is a beforeToolCall or afterToolCall event.
	Event *tasks.Event
	// Chain lists the operations whose hooks are asked, in order; nil means the
	// event's operation alone, with the hooks that are registered for it.
	Chain []ChainLink
	// Timeout bounds all controls together; 0 means the deployment's default.
	Timeout time.Duration
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// ChainLink is one operation of a question's chain.
type ChainLink struct {
	OperationID string
	// Hooks are the operation's hooks in their stored form; nil means those that are
	// registered for it.
	Hooks json.RawMessage
}

// Asker puts questions to controls.
type Asker interface {
	// Evaluate waits for the verdict. The end of ctx cancels the question.
	Evaluate(ctx context.Context, q Question) (tasks.Verdict, error)
	// Submit hands a question over and returns at once; the verdict is nil unless it
	// is known already.
	Submit(ctx context.Context, q Question) (*tasks.Verdict, error)
	// Controls lists which controls would be asked now, in order.
	Controls(ctx context.Context, q Question) ([]ControlInfo, error)
}

// Verdicts keeps the answers to questions for a while.
type Verdicts interface {
	// Await waits for a verdict. It fails with ErrPending when ctx ends first, and
	// with lane.ErrNotFound when the question is not known.
	Await(ctx context.Context, operationID, id string) (tasks.Verdict, error)
	// Cancel takes a question back and returns what it came to: cancelled, or the
	// verdict that was there before.
	Cancel(ctx context.Context, operationID, id string) (tasks.Verdict, error)
}

// Questions is all that the API asks of the control path.
type Questions interface {
	Asker
	Verdicts
}

// ControlInfo is a control that would be asked.
type ControlInfo struct {
	// HookID is "" for an environment hook that only workers know, OperationID for
	// every environment hook.
	HookID, OperationID string
	Environment         bool
	Matcher             *string
	// OnError is its failure policy, never ""; OnErrorSet says that the hook itself
	// names it.
	OnError    tasks.ErrorPolicy
	OnErrorSet bool
	// Timeout bounds its answer; 0 when only workers know it.
	Timeout time.Duration
}
