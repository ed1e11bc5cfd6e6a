package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// The errors of Questions and Deferred beside lane.ErrNotFound, *lane.ReusedError
// and lane.ErrUnavailable.
var (
	// ErrPending says that a question has no verdict yet, or a deferred result is not
	// final yet.
	ErrPending = errors.New("answer is pending")
	// ErrNoCall says that controls must see a deferred result and its call is not
	// known well enough to ask them.
	ErrNoCall = errors.New("call is not known")
	// ErrBridged says that somebody else than its completion bridge tried to complete
	// a deferred result.
	ErrBridged = errors.New("completion bridge alone may complete")
)

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
	// Evaluate waits for the verdict. The end of ctx cancels the question, unless its
	// cause is tasks.ErrDetached: the question goes on then, and Evaluate fails with
	// ErrPending.
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
	// with lane.ErrNotFound when the question is not known; ctx may have ended before,
	// to look once.
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

// Deferred keeps results of tool calls that come later (docs/behaviour.md §18).
type Deferred interface {
	// Open stores a placeholder, or joins the same one.
	Open(ctx context.Context, p Placeholder) (DeferredRow, error)
	// Complete publishes a result once, after the result controls. The end of ctx
	// before that leaves the placeholder open.
	Complete(ctx context.Context, c Completion) (Completed, error)
	// Await waits until a result is final. It fails with ErrPending and the row when
	// ctx ends first; ctx may have ended before, to look once.
	Await(ctx context.Context, id string) (DeferredRow, error)
}

// Placeholder is a tool message that waits for its result.
type Placeholder struct {
	// ID names it.
	ID string
	// OperationID is the operation of the call, ApprovedFrom that of its approval; ""
	// means none.
	OperationID, ApprovedFrom string
	// Call is what controls are told; nil means that nothing is known of it.
	Call *DeferredCall
	// Content is what the message holds already; anything but "" is final.
	Content string
	// State is a JSON object; nil means absent.
	State json.RawMessage
	// Bridge names who alone may complete it; "" means anybody.
	Bridge string
}

// DeferredCall is what is known of a deferred call.
type DeferredCall struct {
	ToolCallID, AssistantMessageID, Identifier, APIName string
	// Arguments is their stored text.
	Arguments string
	// RecordedCalls and Steps are what the operation had made.
	RecordedCalls, Steps int
	// Context holds further texts of the event, by name.
	Context map[string]string
}

// Completion is a result on its way.
type Completion struct {
	ID string
	// OperationID is the callback's parent operation; "" means the placeholder's.
	OperationID string
	// Result is a JSON object.
	Result json.RawMessage
	// PreserveUsage keeps the usage counters of child runs when the result is denied.
	PreserveUsage bool
	Bridge        string
	// RecordedCalls and Steps replace those of the placeholder; nil keeps them.
	RecordedCalls, Steps *int
	Trace                string
}

// Completed is what a completion came to.
type Completed struct {
	// Outcome is published, duplicate or cancelled.
	Outcome string
	Row     DeferredRow
	// Verdict is nil when nobody was asked.
	Verdict *tasks.Verdict
}

// The outcomes of a completion.
const (
	OutcomePublished = "published"
	OutcomeDuplicate = "duplicate"
	OutcomeCancelled = "cancelled"
)

// DeferredRow is how a placeholder stands.
type DeferredRow struct {
	ID, OperationID string
	Final, Denied   bool
	// Document is what a reader of the message sees.
	Document json.RawMessage
	// OpenedAt and SettledAt are in Unix milliseconds; 0 while not.
	OpenedAt, SettledAt int64
}
