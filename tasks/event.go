package tasks

import "encoding/json"

// Event is one occurrence of a hook type in an operation, as handlers and the
// dispatcher see it. Build one with ParseEvent or NewEvent; the zero value is
// invalid.
type Event struct {
	// Type and OperationID name the occurrence.
	Type        HookType
	OperationID string
	// Raw is the event object, byte for byte, without finalState and mock, which
	// never leave the process.
	Raw json.RawMessage
	// FinalState is the runtime's own state at a terminal event. Local handlers
	// only; nil means none.
	FinalState any
	// Mock offers a result in place of the tool's execution. It is set only while
	// DispatchBeforeToolCall runs local handlers, and reports whether the offer was
	// the first one and therefore taken.
	Mock func(result ToolResult) bool

	tool toolName
}

// toolName is what a matcher sees of an event; ok is false when the event lacks
// one of the two names, and then no real pattern matches.
type toolName struct {
	full string
	ok   bool
}
