package tasks

import (
	"encoding/json"
	"errors"
	"time"
)

// ErrDetached is the cause with which an asker's context ends when the question
// is left to whoever asks for its verdict next. Any other end takes it back.
var ErrDetached = errors.New("asker left its question to others")

// Question asks whether a tool call may go ahead (BeforeToolCall) or its result
// be used (AfterToolCall), of the controls in force (docs/behaviour.md §13).
type Question struct {
	// ID names the question and its verdict: a ULID, or the caller's idempotency
	// key within the operation.
	ID string
	// OperationID is the operation of the call.
	OperationID string
	// Type is the phase: BeforeToolCall or AfterToolCall.
	Type HookType
	// Event is the raw tool event, byte for byte as it came. Every round sees it
	// unchanged.
	Event json.RawMessage
	// Rounds are the operations whose caller hooks are asked, in order. Environment
	// hooks are asked once, in the last round; without a round they make one.
	Rounds []Round
	// Timeout is what the whole chain has, counted from when Redis took the
	// question over.
	Timeout time.Duration
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// Round is one operation's part in a question.
type Round struct {
	OperationID string
	// Hooks is the raw array of the operation's serialized hooks; nil means none.
	// StoredHooks parses it.
	Hooks json.RawMessage
}
