package control

import (
	"encoding/json"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// DefaultTimeout is what a whole chain of controls has.
const DefaultTimeout = 60 * time.Second

// Request is one question of a runtime.
type Request struct {
	// ID makes the question idempotent within its operation: asking again with the
	// same id and content reads the same verdict. "" makes a new one.
	ID string
	// Event is a beforeToolCall or afterToolCall event. Required.
	Event *tasks.Event
	// Chain lists the operations whose caller hooks are asked, in order. nil means
	// the event's operation alone, with the hooks that Config.Hooks knows of it.
	Chain []OperationHooks
	// Timeout bounds the whole chain; 0 means the client's default.
	Timeout time.Duration
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// OperationHooks are the caller hooks of one operation of a chain.
type OperationHooks struct {
	OperationID string
	// Hooks is the raw array of serialized hooks. nil means that Config.Hooks is
	// asked; an empty array means that there are none.
	Hooks json.RawMessage
}
