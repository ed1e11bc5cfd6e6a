package webhook

import (
	"encoding/json"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// Delivery is one attempt to hand one event to one webhook hook.
type Delivery struct {
	// Hook is the hook as configured; its Webhook is not nil.
	Hook *tasks.Hook
	// Type is the hook type under which the event was dispatched.
	Type tasks.HookType
	// Event is the raw event object.
	Event json.RawMessage
	// ID is the delivery id, the same for each attempt (tasks.DeliveryID).
	ID string
	// TaskID and OperationID name the event.
	TaskID      string
	OperationID string
	// Sequence is the position in the operation's lane; 0 in local mode.
	Sequence int64
	// Token is the claim under which the attempt is made; 0 in local mode.
	Token int64
	// Attempt counts from 1.
	Attempt int
	// Queued says that somebody makes further attempts when this one fails.
	Queued bool
	// Unsettled says that an earlier attempt handed the request to a relay without
	// learning whether it was taken. Such a delivery is never sent by another road.
	Unsettled bool
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// Result is what one attempt came to. Either Delivered is true, or Cancelled is
// true (the caller's context ended first and no attempt is charged), or Class
// says why it failed.
type Result struct {
	Delivered bool
	Cancelled bool
	// Class is the failure class; "" when delivered or cancelled.
	Class tasks.FailureClass
	// Status is the HTTP status of the reply; 0 when none arrived.
	Status int
	// RetryAfter is what the receiver asked for with 429 or 503; 0 means nothing.
	RetryAfter time.Duration
	// Final forbids a retry; Reason says why (endpoint_gone, no_retry).
	Final  bool
	Reason tasks.DeliveryReason
	// Message is safe to log and to store: no secret, no query, no remote text.
	Message string
	// FellBack says that a failed publish was followed by a fetch; Publish is then
	// the safe message of the publish failure, for the caller to log.
	FellBack bool
	Publish  string
	// Elapsed is the time from the start of the attempt to its outcome.
	Elapsed time.Duration
}
