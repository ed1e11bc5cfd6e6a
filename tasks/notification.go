package tasks

import "encoding/json"

// Notification is one event on its way to the hooks that observe it, with what
// goes along. It is how a part that knows no dispatcher hands an event to one.
type Notification struct {
	// Event is what happened; required.
	Event *Event
	// ID is the idempotency key within the operation: the same id with the same
	// content is stored once. Required, because whoever hands an event over may have
	// to repeat it.
	ID string
	// Persisted is the operation's stored hooks: no bytes for none passed, which is
	// not the same as an empty array (docs/behaviour.md §4).
	Persisted json.RawMessage
	// Trace is a W3C traceparent; "" means none.
	Trace string
	// SkipHandlers leaves out the hooks that have a handler in this process: for the
	// observations of a tool call whose handlers were asked for mocks already
	// (docs/behaviour.md §14).
	SkipHandlers bool
}

// MockResult stands in for the execution of a tool (docs/behaviour.md §14).
type MockResult struct {
	// IsMocked is true in every MockResult; a call without a mock has none.
	IsMocked bool `json:"isMocked"`
	// Result is what the first handler offered.
	Result ToolResult `json:"result"`
}
